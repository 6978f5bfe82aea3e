package shim

import (
	"bytes"
	"io"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxLine is the largest part of a line in one record of the log, in bytes.
const maxLine = 16 << 10

// logFile is a log in the format of the CRI: "TIME STREAM TAG TEXT". The tag is F for text that ends a line and P for
// other text.
type logFile struct {
	mu   sync.Mutex
	dir  int // open directory, because the log has no path in the container's root
	name string
	fd   int
}

// openLog opens a log file, or returns nil if file is an empty string.
func openLog(file string) (*logFile, error) {
	if file == "" {
		return nil, nil
	}
	dir, err := unix.Open(path.Dir(file), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := &logFile{dir: dir, name: path.Base(file), fd: -1}
	return l, l.reopen()
}

// reopen continues in a new file of the same name, for log rotation. Without a log (nil), it does nothing.
func (l *logFile) reopen() error {
	if l == nil {
		return nil
	}
	fd, err := unix.Openat(l.dir, l.name, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
	l.fd = fd
	return nil
}

// write appends b to the log. It drops output that cannot be written.
func (l *logFile) write(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(b) > 0 {
		n, err := unix.Write(l.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil { // a full disk must not stop the command
			return
		}
		b = b[n:]
	}
}

// lines converts a stream of bytes to records of a log.
type lines struct {
	log    *logFile
	stream string
	rest   []byte // text since the last end of line
}

// add logs the lines that b completes, and longer lines in parts of maxLine bytes.
func (w *lines) add(b []byte) {
	if w.log == nil {
		return
	}
	var out []byte
	now := time.Now().UTC().AppendFormat(nil, time.RFC3339Nano)
	w.rest = append(w.rest, b...)
	text := w.rest
	for {
		i := bytes.IndexByte(text, '\n')
		switch {
		case i >= 0 && i <= maxLine:
			out = w.record(out, now, "F", text[:i])
			text = text[i+1:]
			continue
		case len(text) > maxLine:
			out = w.record(out, now, "P", text[:maxLine])
			text = text[maxLine:]
			continue
		}
		break
	}
	w.rest = append(w.rest[:0], text...)
	if len(out) > 0 {
		w.log.write(out)
	}
}

// end logs the last line if it is not terminated.
func (w *lines) end() {
	if w.log != nil && len(w.rest) > 0 {
		w.log.write(w.record(nil, time.Now().UTC().AppendFormat(nil, time.RFC3339Nano), "P", w.rest))
		w.rest = nil
	}
}

// record appends one record to out.
func (w *lines) record(out, now []byte, tag string, text []byte) []byte {
	out = append(out, now...)
	out = append(out, ' ')
	out = append(out, w.stream...)
	out = append(out, ' ')
	out = append(out, tag...)
	out = append(out, ' ')
	out = append(out, text...)
	return append(out, '\n')
}

// pump copies r to the log and the attached clients until r ends.
func (o *output) pump(r io.Reader, stream byte, name string) {
	w := &lines{log: o.log, stream: name}
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			w.add(buf[:n])
			o.broadcast(stream, buf[:n])
		}
		if err != nil { // end of file; from a terminal, EIO
			w.end()
			return
		}
	}
}
