package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// SweepRow is a job of a sweep. Status is nil if the job does not exist.
type SweepRow struct {
	Job
	// Values are the values of the parameters.
	Values []string
	// Deleted is true if the job was deleted. If it is false and Status is nil, the job has not been created yet.
	Deleted bool
}

// exists reports whether the job exists in the cluster.
func (r *SweepRow) exists() bool { return r.Status != nil }

// phase returns a cell with the phase of the job, or with "Deleted", "not started" or "New".
func (r *SweepRow) phase() Cell {
	switch {
	case r.Deleted:
		return Cell{Text: "Deleted", Colour: Bad}
	case !r.exists():
		return Cell{Text: "not started", Colour: Dim}
	case r.Status.Phase == "":
		return Cell{Text: "New", Colour: Wait}
	}
	return phaseCell(r.Status.Phase)
}

// exit returns the exit code of a finished job: 0 if it succeeded, and otherwise the exit code of the first replica
// that failed. It returns a dash if the job has not finished or if the code is not known.
func (r *SweepRow) exit() string {
	if !r.exists() {
		return "-"
	}
	finished, succeeded := observed.Finished(r.Status)
	switch {
	case !finished:
		return "-"
	case succeeded:
		return "0"
	}
	for _, replica := range listed(r.Status) {
		if replica.Phase != batch.ReplicaFailed {
			continue
		}
		for _, c := range replica.Containers {
			if c.ExitCode != nil && *c.ExitCode != 0 {
				return fmt.Sprint(*c.ExitCode)
			}
		}
	}
	return "-"
}

// SweepTable returns the table of a sweep's jobs. Its last column contains the reasons of jobs that failed or wait.
func SweepTable(parameters []string, rows []SweepRow, now time.Time) Table {
	t := Table{Header: append(slices.Clone(parameters), "JOB", "PHASE", "RESTARTS", "WAITED", "RAN", "EXIT", "WHY"), Text: true}
	for i := range rows {
		r := &rows[i]
		waited, ran, restarts, why := "", "", "-", ""
		if r.exists() {
			waited, ran = r.times(now)
			restarts = fmt.Sprint(r.Status.Restarts)
			if finished, succeeded := observed.Finished(r.Status); (!finished || !succeeded) && r.Status.Phase != batch.JobRunning {
				why = observed.OneLine(observed.Explain(r.Status))
			}
		}
		row := append(Plainly(r.Values...), Cell{Text: r.Name}, r.phase())
		t.Rows = append(t.Rows, append(row, Plainly(restarts, orDash(waited), orDash(ran), r.exit(), why)...))
	}
	return t
}

// SweepSums returns the numbers of a sweep's jobs by phase, as text.
func SweepSums(rows []SweepRow) string {
	count := map[string]int{}
	for i := range rows {
		count[rows[i].phase().Text]++
	}
	var parts []string
	for _, phase := range []string{
		string(batch.JobFailed), "Deleted", string(batch.JobUnknown), "New", string(batch.JobPending), string(batch.JobResuming),
		string(batch.JobPaused), string(batch.JobRunning), string(batch.JobSucceeded), "not started",
	} {
		if n := count[phase]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	return strings.Join(parts, ", ")
}

// SweepFrame renders a sweep in at most height lines, or three if height is less, of at most width characters. If its
// jobs do not all fit, jobs that failed, wait or run come first. whole reports whether all of them fit.
func SweepFrame(title string, parameters []string, rows []SweepRow, now time.Time, st Style, width, height int) (lines []string, whole bool) {
	lines = []string{st.Paint(Bold, cut(title+": "+SweepSums(rows), width)), ""}
	sorted := slices.Clone(rows)
	blocks := SweepTable(parameters, sorted, now).blocks(st, "", width)
	total := 0
	for _, block := range blocks {
		total += len(block)
	}
	if len(lines)+total > height {
		slices.SortStableFunc(sorted, func(a, b SweepRow) int { return cmp.Compare(a.urgency(), b.urgency()) })
		blocks = SweepTable(parameters, sorted, now).blocks(st, "", width)
		height--
	}
	table, shown := firstOf(blocks, height-len(lines))
	return append(append(lines, table...), andMore(len(sorted)-shown, "", st, width)...), shown == len(sorted)
}

// urgency orders rows by state: failed or deleted, waiting, running, succeeded, not started.
func (r *SweepRow) urgency() int {
	switch {
	case r.Deleted:
		return 0
	case !r.exists():
		return len(phaseUrgency)
	}
	return slices.Index(phaseUrgency, r.Status.Phase)
}

// SortSweep sorts rows by the values of their parameters, and then by name. Values that are numbers are compared as
// numbers.
func SortSweep(rows []SweepRow) {
	slices.SortStableFunc(rows, func(a, b SweepRow) int {
		for i := range min(len(a.Values), len(b.Values)) {
			if c := compareValues(a.Values[i], b.Values[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

func compareValues(a, b string) int {
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	if err == nil && err2 == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(a, b)
}
