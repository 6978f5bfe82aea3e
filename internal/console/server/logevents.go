package server

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/podlog"
)

// logItem is a line of a stream with its time. pod is the UID of the line's pod; empty for a remark of the console.
type logItem struct {
	at   time.Time
	line view.LogLine
	pod  types.UID
}

// linesInOrder sorts items by time, in place, and returns their lines.
func linesInOrder(all []logItem) []view.LogLine {
	slices.SortStableFunc(all, func(a, b logItem) int { return a.at.Compare(b.at) })
	lines := make([]view.LogLine, len(all))
	for i := range all {
		lines[i] = all[i].line
	}
	return lines
}

// sendLines sends lines as an event. The event has no ID if id is empty.
func (e *events) sendLines(lines []view.LogLine, id string) error {
	data, err := json.Marshal(lines)
	if err != nil {
		return fmt.Errorf("writing lines as JSON: %w", err)
	}
	if id != "" {
		if _, err := fmt.Fprintf(e.w, "id: %s\n", id); err != nil {
			return err
		}
	}
	return e.send("lines", data)
}

// sendText sends an event with a text, which may be empty.
func (e *events) sendText(name, text string) error {
	data, err := json.Marshal(text)
	if err != nil {
		return fmt.Errorf("writing a text as JSON: %w", err)
	}
	return e.send(name, data)
}

// keyOf returns the key of a pod in event IDs, a short hash of its UID.
func keyOf(pod types.UID) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod)) // never fails
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// idOf returns the ID of an event: the positions up to which the logs of pods have been sent.
func idOf(positions map[types.UID]podlog.Position) string {
	parts := make([]string, 0, len(positions))
	for pod, p := range positions {
		parts = append(parts, fmt.Sprintf("%s.%s.%s", keyOf(pod), strconv.FormatInt(p.Time.UnixNano(), 36), strconv.FormatInt(int64(p.Seen), 36)))
	}
	slices.Sort(parts)
	return strings.Join(parts, "~")
}

// parsePositions parses the result of idOf. It skips malformed parts, and returns at most 2*view.ShownLogs positions.
func parsePositions(id string) map[string]podlog.Position {
	all := map[string]podlog.Position{}
	for part := range strings.SplitSeq(id, "~") {
		fields := strings.Split(part, ".")
		if len(fields) != 3 || len(all) == 2*view.ShownLogs {
			continue
		}
		nanos, err1 := strconv.ParseInt(fields[1], 36, 64)
		seen, err2 := strconv.ParseInt(fields[2], 36, 32)
		if err1 == nil && err2 == nil && seen > 0 {
			all[fields[0]] = podlog.Position{Time: time.Unix(0, nanos).UTC(), Seen: int(seen)}
		}
	}
	return all
}
