// Package output reads the output of a job's replicas while they run, across restarts. The verb logs and package
// progress use it. Start reading at Streamer.
package output

import (
	"fmt"
	"time"

	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/cli/view"
)

// Line is one line of the output of a replica.
type Line struct {
	selection.Replica
	// Time is the time at which the replica wrote the line; zero for a remark.
	Time time.Time
	// Text is the line without its line break.
	Text string
	// Remark is true for a line about the output that this program adds.
	Remark bool
}

// palette holds the colours of replicas, used in turn.
var palette = [...]view.Colour{"36", "33", "32", "35", "34", "96", "93", "92", "95", "94"}

// Colour returns the colour of a replica's name.
func Colour(r selection.Replica) view.Colour { return palette[r.Index%len(palette)] }

// Prefix returns the name of a replica, padded to a width, as it is printed before the replica's lines.
func Prefix(name string, r selection.Replica, st view.Style, width int) string {
	return st.Paint(Colour(r), fmt.Sprintf("%-*s |", width, name)) + " "
}

// RemarkText returns the text of a remark as it is printed among the lines of replicas.
func RemarkText(text string) string { return "--- " + text + " ---" }
