package view

import (
	"strings"
	"time"

	"tensorstack.dev/batch/internal/escape"
)

// LogLine is a line of the log of a replica. Its JSON names are short, because a page has many lines.
type LogLine struct {
	// Replica is the name of the log, such as w-0; usually empty if the page shows only one log.
	Replica string `json:"r,omitempty"`
	// Colour is the number of the replica's colour.
	Colour int    `json:"c,omitempty"`
	Text   string `json:"t"`
	// At is when the line was written, in milliseconds since 1970; 0 if the time is unknown.
	At int64 `json:"a,omitempty"`
	// Error is true if the line reports an error.
	Error bool `json:"e,omitempty"`
}

// Time returns when the line was written; zero if the time is unknown.
func (l *LogLine) Time() time.Time {
	if l.At == 0 {
		return time.Time{}
	}
	return time.UnixMilli(l.At)
}

// LogView holds the fields that the pages of current and archived logs share.
type LogView struct {
	// Stream and Download are the paths of the stream of lines and of the file. Stream is empty if the filter has a
	// problem, or if the archive has no lines.
	Stream, Download string
	// Command is the t9k command that prints the logs of the selected replicas. It does not select by state or attempt.
	Command string
	// Lines are the last lines, for pages without the script. State describes them.
	Lines []LogLine
	State string
	// Times is true if the page shows the timestamps of lines.
	Times bool
}

// logColours is the number of colours of replicas in logs.
const logColours = 4

// ColourOf returns the number of the colour of the replica with an index.
func ColourOf(index int) int { return index % logColours }

// maxLineSize is the largest number of bytes that are shown of a line.
const maxLineSize = 8 << 10

// LogSource converts the lines of one log for a page. It must get the lines in their order.
type LogSource struct {
	// Replica and Colour are set on each line.
	Replica string
	Colour  int
	errors  errorScanner
}

// Line returns the next line of the log, with visible control characters. It cuts a line that is longer than
// maxLineSize.
func (s *LogSource) Line(at time.Time, text string) LogLine {
	l := LogLine{Replica: escape.Directed(s.Replica), Colour: s.Colour, Error: s.errors.scan(text)}
	if len(text) > maxLineSize {
		text = strings.ToValidUTF8(text[:maxLineSize], "") + " … (cut: the download has the whole line)"
	}
	if !at.IsZero() {
		l.At = at.UnixMilli()
	}
	l.Text = escape.Directed(text)
	return l
}

// Remark returns a remark of the page about the log in the form of a line.
func (s *LogSource) Remark(text string) LogLine {
	return LogLine{Replica: escape.Directed(s.Replica), Colour: s.Colour, Text: "--- " + escape.Directed(text) + " ---"}
}
