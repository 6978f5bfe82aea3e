package logs

import (
	"io"
	"sync"

	"tensorstack.dev/batch/internal/cli/output"
	"tensorstack.dev/batch/internal/cli/view"
)

// prefixer prints lines with the names of their replicas to a writer that does not escape them. It is safe for
// concurrent use.
type prefixer struct {
	out   io.Writer
	style view.Style
	// width is the width to which the names are padded.
	width      int
	timestamps bool
	// raw disables escaping of the replicas' output.
	raw   bool
	mutex sync.Mutex
}

// emit prints a line.
func (p *prefixer) emit(l output.Line) {
	prefix := output.Prefix(l.String(), l.Replica, p.style, p.width)
	if l.Remark {
		p.write(view.Terminal(prefix + p.style.Paint(view.Dim, view.Escape(output.RemarkText(l.Text))) + "\n"))
		return
	}
	if p.timestamps {
		prefix += l.Time.UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " "
	}
	if p.raw {
		p.write(view.Terminal(prefix) + l.Text + "\n")
		return
	}
	p.write(view.Terminal(prefix + view.Escape(l.Text) + "\n"))
}

func (p *prefixer) write(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	// If the reader of standard output is gone, SIGPIPE stops the program. cli.Main reports other errors.
	_, _ = io.WriteString(p.out, line)
}
