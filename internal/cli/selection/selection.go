// Package selection implements the flags --role, --rank and -c, which select replicas and containers of a job.
package selection

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/observed"
)

// Replica identifies a selected replica by role and rank.
type Replica struct {
	Role string
	Rank int
	// Index is the replica's position among all replicas of the job, counted from 0 by role and rank.
	Index int
}

// String returns the replica's name within its job: ROLE-RANK.
func (r Replica) String() string { return r.Role + "-" + strconv.Itoa(r.Rank) }

// Options are the values of the flags.
type Options struct {
	// Role is the selected role; empty means all.
	Role string
	// Ranks are ranks or ranges such as 0 or 0-3; empty means all.
	Ranks []string
	// Container is the selected container; empty means the main one.
	Container string
}

// Selection holds the selected replicas and containers of a job.
type Selection struct {
	// Roles are the selected roles. There is at least one.
	Roles []Role
	// Width is the length of the longest name of a replica.
	Width int
}

// Role is a role with the ranks and the container that the flags select.
type Role struct {
	Name string
	// Replicas is the number of the role's replicas. first is the index of the first replica.
	Replicas, first int
	// ranks are the selected ranks; nil means all.
	ranks     []int
	Container string
	// chosen is true if the user has named the container.
	chosen bool
}

// New returns the selection of replicas of a job that the flags describe.
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
			s.Roles = append(s.Roles, Role{r.Type, r.Replicas, first, ranks, container, o.Container != ""})
			s.Width = max(s.Width, len(r.Type)+1+len(strconv.Itoa(r.Replicas-1)))
			most = max(most, r.Replicas)
		}
		first += r.Replicas
	}
	switch {
	case len(s.Roles) == 0:
		return nil, fmt.Errorf("%s has no role %q; it has: %s", j.Ref(), o.Role, strings.Join(roles, ", "))
	case len(ranks) > 0 && most == 0:
		return nil, fmt.Errorf("%s has no replicas in the selected roles", j.Ref())
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

// maxRank is greater than every rank that --rank accepts. It limits the length of a range.
const maxRank = 1_000_000

// parseRanks parses ranks and ranges such as 0 or 0-3. It returns nil for an empty list.
func parseRanks(list []string) ([]int, error) {
	var ranks []int
	for _, item := range list {
		from, to, isRange := strings.Cut(item, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 0 || b < a || b >= maxRank {
			return nil, fmt.Errorf("--rank %s: write a rank such as 0 or a range such as 0-3", item)
		}
		for rank := a; rank <= b; rank++ {
			ranks = append(ranks, rank)
		}
	}
	return ranks, nil
}

// Find returns the selected replica and container of a pod. selected is false for any other pod. container is the init
// container that failed, if there is one and the flags name no container.
func (s *Selection) Find(p *corev1.Pod) (r Replica, container string, selected bool) {
	rank, err := strconv.Atoi(p.Labels[batch.LabelReplicaRank])
	if err != nil {
		return Replica{}, "", false
	}
	for _, role := range s.Roles {
		if role.Name == p.Labels[batch.LabelReplicaType] && role.has(rank) {
			container = role.Container
			if end := observed.End(p); end.Init && !role.chosen {
				container = end.Container
			}
			return Replica{role.Name, rank, role.first + rank}, container, true
		}
	}
	return Replica{}, "", false
}

// Labels returns a label selector for the pods of a job that may be selected. The label selector is exact if the
// selection is a single replica or all replicas of one role.
func (s *Selection) Labels(j *kit.Job) string {
	labels := j.Selector()
	if len(s.Roles) != 1 {
		return labels
	}
	labels += "," + batch.LabelReplicaType + "=" + s.Roles[0].Name
	if ranks := s.Roles[0].ranks; len(ranks) == 1 {
		labels += "," + batch.LabelReplicaRank + "=" + strconv.Itoa(ranks[0])
	}
	return labels
}

func (r *Role) has(rank int) bool { return r.ranks == nil || slices.Contains(r.ranks, rank) }

// Replicas returns the selected replicas, by role and rank.
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
