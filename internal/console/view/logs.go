package view

import (
	"regexp"
	"slices"
	"strings"
)

// LogLine is a line of the log of a replica. Its names in JSON are short, because there are many.
type LogLine struct {
	Replica string `json:"r"`
	// Colour is the number of the replica's colour.
	Colour int    `json:"c"`
	Text   string `json:"t"`
	// Error is true if the line tells of an error.
	Error bool `json:"e,omitempty"`
}

// LogsPage is the page of the logs of a job.
type LogsPage struct {
	JobRow
	// Replicas are the replicas to choose from, and Replica is the chosen one; empty for all.
	Replicas []string
	Replica  string
	// Previous selects the container that ran before the present one in the same pod.
	Previous         bool
	Stream, Download string
	Command          string
	// Lines are the last lines, for pages without the script. State describes them.
	Lines  []LogLine
	State  string
	Hidden []Hidden
}

// logColours is the number of colours of replicas in logs.
const logColours = 4

// ColourOf returns the number of the colour of the replica with an index.
func ColourOf(index int) int { return index % logColours }

// errorLine matches lines that tell of an error in the languages and frameworks that people train with.
var errorLine = regexp.MustCompile(`^Traceback \(most recent call last\)|^\w*(\.\w+)*(Error|Exception|Interrupt)(:|$)|\b(ERROR|FATAL|CRITICAL|PANIC)\b|^panic: |^fatal( error)?:|` +
	`^[EF][0-9]{4} |\b(Segmentation fault|core dumped|Out of memory|OutOfMemoryError|CUDA error|NCCL error|No such file or directory|command not found)\b|^error:|level=(error|fatal)|"level":"(error|fatal)"`)

// errorWords are texts of which every line that errorLine matches has one. Looking for them is much cheaper.
var errorWords = []string{"rror", "ERROR", "xception", "nterrupt", "FATAL", "fatal", "CRITICAL", "PANIC", "panic", "Traceback", "fault", "dumped", "emory", "No such", "not found"}

// isError reports whether a line tells of an error.
func isError(line string) bool {
	if line == "" {
		return false
	}
	glog := line[0] == 'E' || line[0] == 'F'
	return (glog || slices.ContainsFunc(errorWords, func(w string) bool { return strings.Contains(line, w) })) && errorLine.MatchString(line)
}

// longestLine is the largest number of bytes of a line that is shown.
const longestLine = 8 << 10

// NewLogLine returns the line of a replica for a page.
func NewLogLine(replica string, colour int, text string) LogLine {
	if len(text) > longestLine {
		text = strings.ToValidUTF8(text[:longestLine], "") + " … (cut: the download has the whole line)"
	}
	return LogLine{Replica: replica, Colour: colour, Text: text, Error: isError(text)}
}
