package view

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// Ages tells when the pods of a job were created, by their UID.
type Ages map[string]time.Time

// replica is one line of a table of replicas.
type replica struct {
	*batch.ReplicaStatus
	role string
	rank int
}

// short is the replica's name within its job: ROLE-RANK.
func (r *replica) short() string { return r.role + "-" + strconv.Itoa(r.rank) }

// listed gathers the replicas that the status lists one by one, by role and rank.
func listed(s *batch.JobStatus) []replica {
	var all []replica
	for i := range s.Tasks {
		first := len(all)
		for k := range s.Tasks[i].Replicas {
			r := &s.Tasks[i].Replicas[k]
			all = append(all, replica{r, s.Tasks[i].Type, RankOf(r.Name)})
		}
		role := all[first:]
		sort.SliceStable(role, func(a, b int) bool { return role[a].rank < role[b].rank })
	}
	return all
}

// RankOf reads the rank at the end of a replica's name; -1 where there is none.
func RankOf(name string) int {
	rank, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return rank
}

var replicaHeader = []string{"REPLICA", "PHASE", "NODE", "RESTARTS", "AGE", ""}

func (r *replica) row(ages Ages, now time.Time) []Cell {
	return []Cell{
		{Text: r.short()},
		{Text: string(r.Phase), Colour: phaseColour(string(r.Phase))},
		{Text: orDash(r.NodeName)},
		{Text: fmt.Sprint(r.RestartCount)},
		{Text: age(ages[r.UID], now)},
		{Text: r.detail(), Colour: r.detailColour()},
	}
}

func (r *replica) detailColour() Colour {
	if r.Phase == batch.ReplicaFailed {
		return Bad
	}
	return Dim
}

// detail says what the phase alone does not: how the containers ended, or why they have not started.
func (r *replica) detail() string {
	parts := make([]string, 0, 2)
	if r.Reason != "" {
		parts = append(parts, oneLine(r.Reason))
	}
	if code := exitCode(r.ReplicaStatus); code != "" {
		parts = append(parts, code)
	}
	return strings.Join(parts, ", ")
}

// exitCode names the exit code other than 0, with the container's name where there are several.
func exitCode(r *batch.ReplicaStatus) string {
	if r.Phase == batch.ReplicaSucceeded { // whatever its sidecars ended with
		return ""
	}
	for _, c := range r.Containers {
		if c.ExitCode == nil || *c.ExitCode == 0 {
			continue
		}
		if len(r.Containers) == 1 {
			return fmt.Sprintf("exit code %d", *c.ExitCode)
		}
		return fmt.Sprintf("%s: exit code %d", c.Name, *c.ExitCode)
	}
	return ""
}

// phaseOrder lists the phases of replicas in the order in which people want to look at them.
var phaseOrder = []batch.ReplicaPhase{
	batch.ReplicaFailed, batch.ReplicaUnknown, batch.ReplicaPending, batch.ReplicaCreating, batch.ReplicaDeleted,
	batch.ReplicaRunning, batch.ReplicaSucceeded,
}

// byUrgency puts the replicas first that need a look: failed ones, then those that do not get going, then those that had
// to be restarted.
func byUrgency(all []replica) []replica {
	sorted := slices.Clone(all)
	sort.SliceStable(sorted, func(a, b int) bool {
		x, y := &sorted[a], &sorted[b]
		if px, py := slices.Index(phaseOrder, x.Phase), slices.Index(phaseOrder, y.Phase); px != py {
			return px < py
		}
		return x.RestartCount > y.RestartCount
	})
	return sorted
}

// nothing is what a table of counts shows for 0.
const nothing = "·"

// roleSums counts the replicas of each role by phase, those included that the status sums up.
func roleSums(s *batch.JobStatus) Table {
	t := Table{Header: []string{"ROLE", "TOTAL"}}
	for _, p := range phaseOrder {
		t.Header = append(t.Header, strings.ToUpper(string(p)))
	}
	t.Header = append(t.Header, "RESTARTS")
	for i := range s.Tasks {
		task := &s.Tasks[i]
		count, sum := countPhases(task)
		row := Plainly(task.Type, fmt.Sprint(sum))
		for _, p := range phaseOrder {
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

func countPhases(task *batch.Tasks) (count map[batch.ReplicaPhase]int, sum int) {
	count = map[batch.ReplicaPhase]int{}
	for k := range task.Replicas {
		count[task.Replicas[k].Phase]++
		sum++
	}
	for _, o := range task.Omitted {
		n := countRanks(o.Ranks)
		count[o.Phase] += n
		sum += n
	}
	return count, sum
}

// countRanks counts the ranks in a list of ranges such as "0-41,57".
func countRanks(ranges string) int {
	n := 0
	for part := range strings.SplitSeq(ranges, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		n += b - a + 1
	}
	return n
}

// rangesOf writes ranks, which must be in order, as ranges such as "0-41,57".
func rangesOf(ranks []int) string {
	var b strings.Builder
	for i := 0; i < len(ranks); {
		k := i
		for k+1 < len(ranks) && ranks[k+1] == ranks[k]+1 {
			k++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		if k > i {
			b.WriteString("-" + strconv.Itoa(ranks[k]))
		}
		i = k + 1
	}
	return b.String()
}

// Several names replicas of a role, whose ranks must be in order: worker-3, or worker-[0-2,5].
func Several(role string, ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("%s-%d", role, ranks[0])
	}
	return fmt.Sprintf("%s-[%s]", role, rangesOf(ranks))
}

// Failure says how a failed replica ended, for use behind its name.
func Failure(r *batch.ReplicaStatus) string {
	return join("failed", (&replica{ReplicaStatus: r}).detail())
}
