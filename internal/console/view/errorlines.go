package view

import (
	"regexp"
	"slices"
	"strings"
)

// errorScanner finds the lines of one log that report an error. It must get all lines in their order, because a
// traceback has several lines and is marked as a whole. In case of doubt, a line is not marked.
type errorScanner struct {
	// tracebacks are the Python tracebacks that are not complete. Several processes may write tracebacks at the same
	// time.
	tracebacks []*traceback
	// frames is true after an error that stack frames of Java or JavaScript may follow. dump is true within the
	// goroutine dump after a panic.
	frames, dump bool
}

// scan reports whether the next line reports an error.
func (s *errorScanner) scan(line string) bool {
	line = unadorned(line)
	if len(s.tracebacks) == 0 && !s.frames && !s.dump && !mayBeError(line) {
		return false
	}
	if prefix, found := tracebackHeader(line); found {
		s.tracebacks = append(s.tracebacks, &traceback{prefix: prefix, bare: prefix == "", whole: rankPrefix.MatchString(prefix)})
		s.frames, s.dump = false, false
		return true
	}
	bare := line[len(processPrefix.FindString(line)):]
	if s.dump = s.dump && goDump.MatchString(bare) || goPanic.MatchString(bare); s.dump {
		return true
	}
	if s.frames && stackFrame.MatchString(bare) {
		return true
	}
	found := s.continues(line)
	found = found || mayBeError(line) && (errorBegin.MatchString(bare) || errorWithin.MatchString(line)) && !noError.MatchString(line)
	s.frames = found
	return found
}

var (
	ansi = regexp.MustCompile(`\x1b\[[0-9;:?]*[ -/]*[@-~]`)
	// processPrefix matches the prefix that launchers of several processes write before each line.
	processPrefix = regexp.MustCompile(`^(\[\w+\]: ?|\(\w+ pid=[^)]*\) )+`)
	// errorBegin matches the beginning, after the prefix of the process, of lines that report an error in the languages
	// and frameworks that are used for training. errorWithin matches texts that report an error anywhere in a line.
	// noError excludes lines that one of the two matches, but that report no error.
	errorBegin = regexp.MustCompile(`^(\w+\.)*(\w+Error|\w*Exception|\w+Interrupt)(: |:?$)|^(\S+: )?(line \d+: )?[Ee]rror: +[^\d\s.+-]|^[Ff]atal( error| Python error)?: |^Exception in thread |^thread '.*' panicked at |` +
		`^\[?[EF][0-9]{4} |^FATAL|^terminate called |^\s+what\(\): |^\s*(Caused by|Suppressed): |^Killed$|^(\S+: )?(line )?\d+: +\d+ (Killed|Aborted|Terminated) |` +
		`^During handling of the above exception, another |^The above exception was the direct cause of |^(free|malloc|munmap_chunk)\(\): (invalid|corrupt)|^(\S+: )*(line )?(\d+: )?\S+: (command )?not found$`)
	errorWithin = regexp.MustCompile(`\b(ERROR|FATAL|CRITICAL|PANIC)\b|"level(name)?": ?"(error|fatal|critical)"|\blevel=(error|fatal)\b|\b(Segmentation fault|Bus error|core dumped|Out of memory|OutOfMemoryError|No such file or directory|Permission denied|No space left on device)\b|` +
		`\b(CUDA|NCCL|cuDNN|HIP|MPI) error\b|\bNCCL WARN\b|\b(cudaError[A-Z]|nccl\w+Error\b)|\b(CUBLAS|CUDNN|CUFFT|CUSOLVER|CUSPARSE)_STATUS_([A-RT-Z]|S[A-TV-Z])|device-side assert triggered|exited on signal \d`)
	noError = regexp.MustCompile(`(?i)\b(0|no|without) errors?\b|\blog[-_ ]?level\W+(to )?error`)
	// goPanic matches the first line of a panic, of a fatal error or of a goroutine dump of Go, and goDump the lines of
	// the dump that follows it.
	goPanic = regexp.MustCompile(`^(panic|fatal error): |^[\d/]+ [\d:.]+ http: panic serving |^goroutine \d+ \[.*\]:$`)
	goDump  = regexp.MustCompile(`^$|^\t?panic: |^\[signal |^goroutine \d+ .*:$|^[^\s(]+\.\S*\(.*\)$|^\t\S+:\d+( \+0x[0-9a-f]+)?$|^created by |^runtime stack:$|^exit status \d+$|^\.\.\.additional frames elided`)
	// stackFrame matches the lines after the first line of a Java or JavaScript error.
	stackFrame = regexp.MustCompile(`^\s+at \S|^\s+\.\.\. \d+ |^(Caused by|\s+Suppressed): `)
)

// errorWords holds texts that select lines for the expressions above: each line that begins or reports an error
// contains one of them, or begins with a character that mayBeError checks. Searching for texts is much cheaper than
// matching the expressions.
var errorWords = []string{"rror", "ERROR", "xception", "nterrupt", "FATAL", "atal", "CRITICAL", "critical", "PANIC", "panic", "Traceback", "fault", "dumped", "emory", "No such", "not found",
	"denied", "goroutine", "terminate", "what()", "Caused by", "Suppressed", "Killed", "Aborted", "Terminated", "()", "NCCL", "_STATUS_", "No space", "triggered", "on signal"}

// mayBeError reports whether a line can match the expressions for errors. It may return true for other lines.
func mayBeError(line string) bool {
	if line == "" {
		return false
	}
	glog := line[0] == 'E' || line[0] == 'F' || line[0] == '['
	return glog || slices.ContainsFunc(errorWords, func(w string) bool { return strings.Contains(line, w) })
}

// unadorned returns a line as it looks on a terminal: without colours, and without text that a progress bar has
// overwritten.
func unadorned(line string) string {
	line = strings.TrimRight(line, "\r")
	if strings.IndexByte(line, '\x1b') >= 0 {
		line = ansi.ReplaceAllString(line, "")
	}
	return line[strings.LastIndexByte(line, '\r')+1:]
}

// traceback is an incomplete Python traceback.
type traceback struct {
	// prefix is the text before the word Traceback in the first line, such as "[rank0]: ". The other lines have the
	// same prefix, apart from digits, or, if bare is true, no prefix. known is true when another line has shown which
	// of the two applies.
	prefix      string
	bare, known bool
	// whole is true if only uncaught exceptions have the prefix, so that every line with the prefix belongs to the
	// traceback.
	whole bool
	// raised is true after the line with the exception.
	raised bool
	// foreign is the number of lines of other output since the last line of the traceback.
	foreign int
}

// foreignLines is the largest number of consecutive lines of other output within a traceback.
const foreignLines = 500

var (
	rankPrefix = regexp.MustCompile(`\[rank\d+\]: $`)
	// exceptionLine matches the line of a traceback with the name of the exception.
	exceptionLine = regexp.MustCompile(`^[A-Za-z_][\w.]*(:( .*)?)?$`)
)

// tracebackHeader reports whether a line is the first line of a traceback, and returns the text before the word
// Traceback. For a box of the library rich, this text is empty.
func tracebackHeader(line string) (prefix string, found bool) {
	prefix, rest, found := strings.Cut(line, "Traceback (most recent call last)")
	switch {
	case !found:
		return "", false
	case strings.HasPrefix(prefix, "╭"): // a box of the library rich
		return "", true
	}
	return prefix, strings.TrimRight(rest, " ") == ":"
}

// continues reports whether a line belongs to an incomplete traceback. It drops tracebacks that have ended, and those
// that more than foreignLines lines of other output follow.
func (s *errorScanner) continues(line string) bool {
	if len(s.tracebacks) == 0 {
		return false
	}
	of, rest := s.of(line)
	found := of != nil && of.takes(rest)
	s.tracebacks = slices.DeleteFunc(s.tracebacks, func(t *traceback) bool {
		if t == of && found {
			t.foreign = 0
			return false
		}
		t.foreign++
		return t.foreign > foreignLines || t == of && t.raised
	})
	return found
}

// of returns the traceback to which a line may belong, and the line without its prefix. It records in the traceback
// whether its lines have the prefix. The traceback is nil if the line belongs to none.
func (s *errorScanner) of(line string) (of *traceback, rest string) {
	if of = s.prefixed(line, strings.HasPrefix); of == nil {
		of = s.prefixed(line, sameButDigits)
	}
	if of != nil {
		of.bare, of.known = false, true
		return of, line[len(of.prefix):]
	}
	for _, t := range slices.Backward(s.tracebacks) {
		if t.bare || !t.known && isFrame(line) {
			t.bare, t.known = true, true
			return t, line
		}
	}
	return nil, ""
}

// prefixed returns the traceback with the longest prefix that fits a line; nil if there is none. It skips tracebacks
// without a prefix, and those whose other lines have none.
func (s *errorScanner) prefixed(line string, fits func(line, prefix string) bool) (of *traceback) {
	for _, t := range s.tracebacks {
		if (t.bare && t.known) || t.prefix == "" || !fits(line, t.prefix) {
			continue
		}
		if of == nil || len(t.prefix) > len(of.prefix) {
			of = t
		}
	}
	return of
}

// takes reports whether a line, without its prefix, belongs to the traceback. It sets raised if the line names the
// exception.
func (t *traceback) takes(rest string) bool {
	switch {
	case t.whole && !t.bare:
		return true
	case t.raised: // a message continues after a tab only, because a progress bar may begin with spaces
		return strings.HasPrefix(rest, "\t")
	}
	t.raised = exceptionLine.MatchString(rest)
	return t.raised || isFrame(rest)
}

// isFrame reports whether a line without its prefix looks like a line between the first line of a traceback and the
// exception.
func isFrame(line string) bool {
	return line != "" && (line[0] == ' ' || line[0] == '\t' || strings.HasPrefix(line, "│") || strings.HasPrefix(line, "╰"))
}

// sameButDigits reports whether a line begins with a prefix, such as the prefix of a logger with the time, if all
// digits are considered equal. It returns false for a prefix that ends with a rank, because the digits of ranks tell
// processes apart.
func sameButDigits(line, prefix string) bool {
	if len(line) < len(prefix) || rankPrefix.MatchString(prefix) {
		return false
	}
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	for i := range len(prefix) {
		if same := line[i] == prefix[i] || digit(line[i]) && digit(prefix[i]); !same {
			return false
		}
	}
	return true
}
