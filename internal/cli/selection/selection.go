// Package selection reads the flags that say which replicas and containers of a job are meant: --role, --rank and -c.
package selection

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
)

// Replica is a selected replica.
type Replica struct {
	Role string
	Rank int
	// Index counts the replicas of the job, by role and rank.
	Index int
}

// String is the replica's name within its job: ROLE-RANK.
func (r Replica) String() string { return r.Role + "-" + strconv.Itoa(r.Rank) }

// Options are the values of the flags.
type Options struct {
	// Role is empty for all.
	Role string
	// Ranks are such as 0 or 0-3; none stands for all.
	Ranks []string
	// Container is empty for the main one.
	Container string
}

// Selection says which replicas and containers of a job are meant.
type Selection struct {
	// Roles are the selected ones; there is at least one.
	Roles []Role
	// Width is that of the longest name of a replica.
	Width int
}

// Role is a selected role.
type Role struct {
	Name string
	// Replicas is the number of them, first the index of the first.
	Replicas, first int
	// ranks is nil for all.
	ranks     []int
	Container string
}

// New returns what the flags select of a job.
func New(j *kit.Job, o Options) (*Selection, error) {
	normal, err := j.Normal()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", j.Ref(), err)
	}
	ranks, err := parseRanks(o.Ranks)
	if err != nil {
		return nil, err
	}
	s := &Selection{}
	var roles []string
	first, most := 0, 0
	for i := range normal.Roles {
		r := &normal.Roles[i]
		roles = append(roles, r.Type)
		if o.Role == "" || o.Role == r.Type {
			container := o.Container
			if container == "" {
				container = r.Template.Spec.Containers[r.Main].Name
			} else if err := hasContainer(&r.Template.Spec, container); err != nil {
				return nil, fmt.Errorf("role %q has %w", r.Type, err)
			}
			s.Roles = append(s.Roles, Role{r.Type, r.Replicas, first, ranks, container})
			s.Width = max(s.Width, len(r.Type)+1+len(strconv.Itoa(r.Replicas-1)))
			most = max(most, r.Replicas)
		}
		first += r.Replicas
	}
	switch {
	case len(s.Roles) == 0:
		return nil, fmt.Errorf("%s has no role %q; it has: %s", j.Ref(), o.Role, strings.Join(roles, ", "))
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

// Find tells of which selected replica and container a pod is; it is false for any other pod.
func (s *Selection) Find(p *corev1.Pod) (r Replica, container string, selected bool) {
	rank, err := strconv.Atoi(p.Labels[batch.LabelReplicaRank])
	if err != nil {
		return Replica{}, "", false
	}
	for _, role := range s.Roles {
		if role.Name == p.Labels[batch.LabelReplicaType] && role.has(rank) {
			return Replica{role.Name, rank, role.first + rank}, role.Container, true
		}
	}
	return Replica{}, "", false
}

func (r *Role) has(rank int) bool { return r.ranks == nil || slices.Contains(r.ranks, rank) }

// Replicas lists what is selected.
func (s *Selection) Replicas() []Replica {
	var all []Replica
	for _, r := range s.Roles {
		for rank := range r.Replicas {
			if r.has(rank) {
				all = append(all, Replica{r.Name, rank, r.first + rank})
			}
		}
	}
	return all
}
