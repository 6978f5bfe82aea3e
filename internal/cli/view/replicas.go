package view

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// Ages holds the creation times of a job's pods by their UID.
type Ages map[string]time.Time

// replica is one line in a table of replicas.
type replica struct {
	*batch.ReplicaStatus
	role string
	rank int
}

// short returns the replica's name within its job: ROLE-RANK.
func (r *replica) short() string { return r.role + "-" + strconv.Itoa(r.rank) }

// listed returns the replicas that the status lists one by one, by role and rank.
func listed(s *batch.JobStatus) []replica {
	var all []replica
	for i := range s.Tasks {
		first := len(all)
		for k := range s.Tasks[i].Replicas {
			r := &s.Tasks[i].Replicas[k]
			all = append(all, replica{r, s.Tasks[i].Type, observed.RankOf(r.Name)})
		}
		role := all[first:]
		sort.SliceStable(role, func(a, b int) bool { return role[a].rank < role[b].rank })
	}
	return all
}

var replicaHeader = []string{"REPLICA", "PHASE", "NODE", "RESTARTS", "AGE", ""}

func (r *replica) row(ages Ages, now time.Time) []Cell {
	return []Cell{
		{Text: r.short()},
		{Text: string(r.Phase), Colour: phaseColour(string(r.Phase))},
		{Text: orDash(r.NodeName)},
		{Text: fmt.Sprint(r.RestartCount)},
		{Text: age(ages[r.UID], now)},
		{Text: observed.Detail(r.ReplicaStatus), Colour: r.detailColour()},
	}
}

func (r *replica) detailColour() Colour {
	if r.Phase == batch.ReplicaFailed {
		return Bad
	}
	return Dim
}

// byUrgency returns the replicas sorted by phase in the order of observed.PhaseOrder. Of one phase, the replicas with
// the most restarts come first.
func byUrgency(all []replica) []replica {
	sorted := slices.Clone(all)
	sort.SliceStable(sorted, func(a, b int) bool {
		x, y := &sorted[a], &sorted[b]
		if px, py := slices.Index(observed.PhaseOrder, x.Phase), slices.Index(observed.PhaseOrder, y.Phase); px != py {
			return px < py
		}
		return x.RestartCount > y.RestartCount
	})
	return sorted
}

// nothing is the text for 0 in a table of counts.
const nothing = "·"

// roleSums counts the replicas of each role by phase, including those that the status does not list.
func roleSums(s *batch.JobStatus) Table {
	t := Table{Header: []string{"ROLE", "TOTAL"}}
	for _, p := range observed.PhaseOrder {
		t.Header = append(t.Header, strings.ToUpper(string(p)))
	}
	t.Header = append(t.Header, "RESTARTS")
	for i := range s.Tasks {
		task := &s.Tasks[i]
		count, sum := observed.CountPhases(task)
		row := Plainly(task.Type, fmt.Sprint(sum))
		for _, p := range observed.PhaseOrder {
			c := Cell{Text: fmt.Sprint(count[p]), Colour: phaseColour(string(p))}
			if count[p] == 0 {
				c = Cell{Text: nothing, Colour: Dim}
			}
			row = append(row, c)
		}
		t.Rows = append(t.Rows, append(row, Cell{Text: fmt.Sprint(task.RestartCount)}))
	}
	return t
}

// Several returns the names of replicas of a role as one text: worker-3, or worker-[0-2,5]. The ranks must be sorted.
func Several(role string, ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("%s-%d", role, ranks[0])
	}
	return fmt.Sprintf("%s-[%s]", role, engine.FormatRanks(ranks))
}

// Failure returns how a failed replica ended, as text that follows its name.
func Failure(r *batch.ReplicaStatus) string {
	return join("failed", observed.Detail(r))
}
