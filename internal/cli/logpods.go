package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/podlog"
	"tensorstack.dev/batch/internal/cli/view"
)

// replica is one that logs are printed of.
type replica struct {
	role string
	rank int
	// index counts the replicas of the job, by role and rank.
	index int
}

func (r replica) String() string { return r.role + "-" + strconv.Itoa(r.rank) }

// logPod is a pod of a selected replica.
type logPod struct {
	*corev1.Pod
	replica
	container string
	// attempt counts the pods of the replica from 0.
	attempt int
}

// selection says which replicas and containers of a job are meant.
type selection struct {
	roles []selectedRole
	// width is that of the longest name of a replica.
	width int
}

type selectedRole struct {
	role string
	// replicas is the number of them, first the index of the first.
	replicas, first int
	// ranks is nil for all.
	ranks     []int
	container string
}

// newSelection reads the flags in the light of the job.
func newSelection(j *job, o *logsOptions) (*selection, error) {
	normal, err := j.lowered()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", j.ref(), err)
	}
	ranks, err := parseRanks(o.ranks)
	if err != nil {
		return nil, err
	}
	s := &selection{}
	var roles []string
	first, most := 0, 0
	for i := range normal.Roles {
		r := &normal.Roles[i]
		roles = append(roles, r.Type)
		if o.role == "" || o.role == r.Type {
			container := o.container
			if container == "" {
				container = r.Template.Spec.Containers[r.Main].Name
			} else if err := hasContainer(&r.Template.Spec, container); err != nil {
				return nil, fmt.Errorf("role %q has %w", r.Type, err)
			}
			s.roles = append(s.roles, selectedRole{r.Type, r.Replicas, first, ranks, container})
			s.width = max(s.width, len(r.Type)+1+len(strconv.Itoa(r.Replicas-1)))
			most = max(most, r.Replicas)
		}
		first += r.Replicas
	}
	switch {
	case len(s.roles) == 0:
		return nil, fmt.Errorf("%s has no role %q; it has: %s", j.ref(), o.role, strings.Join(roles, ", "))
	case len(ranks) > 0 && slices.Max(ranks) >= most:
		return nil, fmt.Errorf("rank %d is out of range: ranks are 0 to %d", slices.Max(ranks), most-1)
	}
	return s, nil
}

func hasContainer(spec *corev1.PodSpec, name string) error {
	var names []string
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	for i := range spec.InitContainers {
		names = append(names, spec.InitContainers[i].Name)
	}
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("no container %q; it has: %s", name, strings.Join(names, ", "))
}

// maxRanges bounds what a list of ranges may stand for.
const maxRanges = 1_000_000

// parseRanks reads ranks such as 0 or 0-3.
func parseRanks(list []string) ([]int, error) {
	var ranks []int
	for _, item := range list {
		from, to, isRange := strings.Cut(item, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 0 || b < a || b >= maxRanges {
			return nil, fmt.Errorf("--rank %s: write a rank such as 0 or a range such as 0-3", item)
		}
		for rank := a; rank <= b; rank++ {
			ranks = append(ranks, rank)
		}
	}
	return ranks, nil
}

// pod is a pod of a selected replica, or nil for any other pod.
func (s *selection) pod(p *corev1.Pod) *logPod {
	rank, err := strconv.Atoi(p.Labels[batch.LabelReplicaRank])
	if err != nil {
		return nil
	}
	for _, r := range s.roles {
		if r.role == p.Labels[batch.LabelReplicaType] && r.has(rank) {
			attempt, _ := strconv.Atoi(p.Labels[batch.LabelReplicaAttempt])
			return &logPod{Pod: p, replica: replica{r.role, rank, r.first + rank}, container: r.container, attempt: attempt}
		}
	}
	return nil
}

func (r *selectedRole) has(rank int) bool { return r.ranks == nil || slices.Contains(r.ranks, rank) }

// replicas lists what is selected.
func (s *selection) replicas() []replica {
	var all []replica
	for _, r := range s.roles {
		for rank := range r.replicas {
			if r.has(rank) {
				all = append(all, replica{r.role, rank, r.first + rank})
			}
		}
	}
	return all
}

// prefixer prints lines behind the names of their replicas, to a writer that takes them as they are. It may be used by several goroutines at once.
type prefixer struct {
	out        io.Writer
	style      view.Style
	width      int
	timestamps bool
	// raw passes on what replicas wrote as it is.
	raw   bool
	mutex sync.Mutex
}

// palette holds the colours of replicas, taken in turn.
var palette = [...]view.Colour{"36", "33", "32", "35", "34", "96", "93", "92", "95", "94"}

func (p *prefixer) emitter(r replica) func(podlog.Line) {
	prefix := p.prefix(r)
	return func(l podlog.Line) {
		stamp := ""
		if p.timestamps {
			stamp = l.Time.UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " "
		}
		if p.raw {
			p.write(view.Terminal(prefix+stamp) + l.Text + "\n")
			return
		}
		p.write(view.Terminal(prefix + stamp + view.Escape(l.Text) + "\n"))
	}
}

// remark prints a line of our own among those of a replica.
func (p *prefixer) remark(r replica, text string) {
	p.write(view.Terminal(p.prefix(r) + p.style.Paint(view.Dim, "--- "+view.Escape(text)+" ---") + "\n"))
}

func (p *prefixer) prefix(r replica) string {
	return p.style.Paint(palette[r.index%len(palette)], fmt.Sprintf("%-*s |", p.width, r)) + " "
}

func (p *prefixer) write(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	// Nobody reads on: the next request fails, or the signal ends the program.
	_, _ = io.WriteString(p.out, line)
}
