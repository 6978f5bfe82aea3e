package progress

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/cli/archiveclient"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
)

// archivedTail prints the last lines of the log of a replica whose pod is gone. If no archive has them, it prints that
// the log is gone too.
func (d *display) archivedTail(ctx context.Context, j *kit.Job, replica, container string) {
	lines := d.archived(ctx, j, replica, container)
	if len(lines) == 0 {
		fmt.Fprintln(d.Out, d.style.Paint(view.Dim, "  its pod is gone, and its log with it"))
		return
	}
	fmt.Fprintln(d.Out, d.style.Paint(view.Dim, "  its pod is gone; from the archive:"))
	for _, line := range lines {
		fmt.Fprintf(d.Out, "  %s %s\n", d.style.Paint(view.Dim, "|"), view.Escape(line))
	}
}

// archived returns the last linesShown lines of the log that lastLog chooses from the archive, without their times. It
// returns none if the archive cannot be read or has no such log. Errors are ignored, because the log only completes the
// output.
func (d *display) archived(ctx context.Context, j *kit.Job, replica, container string) []string {
	c, err := archiveclient.Connect(d.Program, archiveclient.Options{})
	if err != nil {
		return nil
	}
	list, err := c.Logs(ctx, string(j.GetUID()), replica)
	if err != nil {
		return nil
	}
	last := lastLog(list.Logs, append(initContainers(j, replica), container))
	if last == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(last.Text, "\n"), "\n")
	lines = lines[max(0, len(lines)-linesShown):]
	for i := range lines {
		stamp, text, _ := strings.Cut(lines[i], " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
			lines[i] = text
		}
	}
	return lines
}

// lastLog returns the log of a replica's newest pod that has output; nil if there is none. The number of an attempt
// alone does not identify the newest pod, because attempts are counted from 0 again when a replica is removed and added
// again by scaling. containers are the names of the init containers and of the main container. The archive has the log
// of an init container only if it failed, and then no other log of the attempt.
func lastLog(logs []archive.LogText, containers []string) *archive.LogText {
	var last *archive.LogText
	for i := range logs {
		l := &logs[i]
		if l.Text == "" || !slices.Contains(containers, l.Container) {
			continue
		}
		if last == nil || cmp.Or(l.Created.Compare(last.Created), cmp.Compare(l.Attempt, last.Attempt)) > 0 {
			last = l
		}
	}
	return last
}

// initContainers returns the names of the init containers of a replica; none if the spec is invalid.
func initContainers(j *kit.Job, replica string) (names []string) {
	normal, err := j.Normal()
	if err != nil {
		return nil
	}
	for i := range normal.Roles {
		r := &normal.Roles[i]
		if replica[:strings.LastIndexByte(replica, '-')] != r.Type {
			continue
		}
		for _, c := range r.Template.Spec.InitContainers {
			names = append(names, c.Name)
		}
	}
	return names
}
