package logs

import (
	"fmt"
	"io"
	"sync"

	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/podlog"
)

// prefixer prints lines with the names of their replicas to a writer that does not escape them. Several goroutines may
// use it at once.
type prefixer struct {
	out        io.Writer
	style      view.Style
	width      int
	timestamps bool
	// raw disables escaping of the replicas' output.
	raw   bool
	mutex sync.Mutex
}

// palette holds the colours of replicas, used in turn.
var palette = [...]view.Colour{"36", "33", "32", "35", "34", "96", "93", "92", "95", "94"}

func (p *prefixer) emitter(r selection.Replica) func(podlog.Line) {
	prefix := p.prefix(r)
	return func(l podlog.Line) {
		stamp := ""
		if p.timestamps {
			stamp = l.Time.UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " "
		}
		if p.raw {
			p.write(view.Terminal(prefix+stamp) + l.Text + "\n")
			return
		}
		p.write(view.Terminal(prefix + stamp + view.Escape(l.Text) + "\n"))
	}
}

// remark prints a line of this program among the lines of a replica.
func (p *prefixer) remark(r selection.Replica, text string) {
	p.write(view.Terminal(p.prefix(r) + p.style.Paint(view.Dim, "--- "+view.Escape(text)+" ---") + "\n"))
}

func (p *prefixer) prefix(r selection.Replica) string {
	return p.style.Paint(palette[r.Index%len(palette)], fmt.Sprintf("%-*s |", p.width, r)) + " "
}

func (p *prefixer) write(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	// The error is ignored: if the reader of the output is gone, the next request fails or a signal ends the program.
	_, _ = io.WriteString(p.out, line)
}
