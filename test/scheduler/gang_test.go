package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
)

// TestRoleMinimumsAreSeparate verifies that pods of one role do not count towards the minimum of another role.
func TestRoleMinimumsAreSeparate(t *testing.T) {
	s := sharedStage(t)
	s.simulated("n", 10)
	s.queue("q", "", 0)
	s.podGroup("g", "q", 4, func(g *scheduling.PodGroupSpec) {
		g.Roles = []scheduling.PodGroupRole{{Name: "ps", MinMember: 1}, {Name: "worker", MinMember: 3}}
	})
	s.members("g", "q", 4, "1", inRole("worker"))
	began := time.Now()
	s.awaitRefused("g", scheduling.ReasonNotEnoughMembers)
	if time.Since(began) > soon {
		await.Overdue(t, "the reason was reported late")
	}
	if want := "1 of the 1 pods of role ps that it needs do not exist yet"; s.condition("g").Message != want {
		t.Errorf("message %q, want %q", s.condition("g").Message, want)
	}
	s.member("g-ps", "g", "q", "1", inRole("ps"))
	s.awaitBound("g", 5)
	s.awaitReason("g", scheduling.ReasonScheduled)
}

func required(key, value string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}}}
}

// gangMates returns affinity terms that select the pods of the pod's own gang on the same node.
func gangMates(p *corev1.Pod) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{scheduling.LabelGroupName: p.Labels[scheduling.LabelGroupName]}}}}
}

// constraintCase is a constraint on the placement of pods. A gang of fits pods can meet it, and a gang of unfit pods
// cannot.
type constraintCase struct {
	nodes        map[string]int // CPUs by name of the node
	set          func(*stage)
	change       func(*corev1.Pod)
	cpu          string
	fits, unfit  int
	reason       string   // the reason of the gang that does not fit; empty for NoRoom
	want         []string // the nodes of the gang that fits; nil for any nodes
	wantSpreadBy int      // pods on each node; 0 for any number
}

var constraintCases = map[string]constraintCase{
	"node selector": {nodes: map[string]int{"n0": 4, "n1": 4, "n2": 4}, cpu: "4", fits: 2, unfit: 3, want: []string{"n0", "n1"},
		set: func(s *stage) {
			for _, n := range []string{"n0", "n1"} {
				s.changeNode(n, func(n *corev1.Node) { n.Labels["disk"] = "ssd" })
			}
		},
		change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }, reason: scheduling.ReasonImpossible},
	"node affinity": {nodes: map[string]int{"n0": 4, "n1": 4, "n2": 4}, cpu: "4", fits: 2, unfit: 3, want: []string{"n0", "n1"},
		set: func(s *stage) {
			for _, n := range []string{"n0", "n1"} {
				s.changeNode(n, func(n *corev1.Node) { n.Labels["disk"] = "ssd" })
			}
		},
		change: func(p *corev1.Pod) { p.Spec.Affinity = required("disk", "ssd") }, reason: scheduling.ReasonImpossible},
	"taints": {nodes: map[string]int{"n0": 4, "n1": 4, "n2": 4}, cpu: "4", fits: 2, unfit: 3, want: []string{"n0", "n1"},
		set: func(s *stage) {
			s.changeNode("n2", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "mine", Value: "all", Effect: corev1.TaintEffectNoSchedule}}
			})
		},
		change: func(*corev1.Pod) {}, reason: scheduling.ReasonImpossible},
	"tolerated taints": {nodes: map[string]int{"n0": 4, "n1": 4, "n2": 4}, cpu: "4", fits: 3, unfit: 4, reason: scheduling.ReasonImpossible, want: []string{"n0", "n1", "n2"},
		set: func(s *stage) {
			s.changeNode("n2", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "mine", Value: "all", Effect: corev1.TaintEffectNoSchedule}}
			})
		},
		change: func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "mine", Operator: corev1.TolerationOpExists}}
		}},
	"pod anti-affinity": {nodes: map[string]int{"n0": 8, "n1": 8, "n2": 8}, cpu: "1", fits: 3, unfit: 4, want: []string{"n0", "n1", "n2"},
		change: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: gangMates(p)}}
		}},
	"pod affinity": {nodes: map[string]int{"n0": 4, "n1": 4}, cpu: "2", fits: 2, unfit: 3,
		change: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: gangMates(p)}}
		}, wantSpreadBy: 2},
	"topology spread": {nodes: map[string]int{"n0": 16, "n1": 2}, cpu: "1", fits: 4, unfit: 6, want: []string{"n0", "n1"}, wantSpreadBy: 2,
		change: func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: gangMates(p)[0].LabelSelector}}
			// The constraint counts all nodes that the pod may use, so the pod must not use the nodes of other tests.
			p.Spec.NodeSelector = map[string]string{labelStage: p.Namespace}
		}},
	"host ports": {nodes: map[string]int{"n0": 8, "n1": 8}, cpu: "1", fits: 2, unfit: 3, want: []string{"n0", "n1"},
		change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		}},
}

// TestGangPlanRespectsNodeConstraints verifies that the plan for a gang meets the constraints of all its pods on
// nodes and on each other. The smaller of two gangs fits, and no pod of the other gang is bound.
func TestGangPlanRespectsNodeConstraints(t *testing.T) {
	t.Parallel()
	for name, test := range constraintCases {
		t.Run(name, func(t *testing.T) {
			s := sharedStage(t)
			for n, cpu := range test.nodes {
				s.node(n, cpu, nil)
			}
			if test.set != nil {
				test.set(s)
			}
			s.queue("q", "", 0)
			s.group("unfit", "q", test.unfit, test.cpu, test.change)
			s.awaitRefused("unfit", cmp.Or(test.reason, scheduling.ReasonNoRoom))
			s.group("fits", "q", test.fits, test.cpu, test.change)
			s.awaitBound("fits", test.fits)
			if got := s.nodesOf("fits"); test.want != nil && !slices.Equal(got, test.want) {
				t.Errorf("the gang is on %v, want %v", got, test.want)
			}
			on := map[string]int{}
			for _, p := range s.pods("fits") {
				on[p.Spec.NodeName]++
			}
			for n, pods := range on {
				if test.wantSpreadBy > 0 && pods != test.wantSpreadBy {
					t.Errorf("%d pods are on %s, want %d", pods, n, test.wantSpreadBy)
				}
			}
			if n := s.bound("unfit"); n != 0 {
				t.Errorf("%d pods of the gang that does not fit are bound", n)
			}
		})
	}
}

// TestPodsBeyondMinimumBindOneByOne verifies that pods beyond the minimum are bound one by one, and that each waiting
// pod has a condition with its own reason.
func TestPodsBeyondMinimumBindOneByOne(t *testing.T) {
	s := sharedStage(t)
	s.simulated("n0", 3)
	s.queue("q", "", 0)
	s.podGroup("g", "q", 2)
	s.members("g", "q", 5, "1")
	s.awaitBound("g", 3)
	s.awaitReason("g", scheduling.ReasonScheduled)
	s.Await("the two waiting pods report the reason", func() error {
		for _, p := range s.pods("g") {
			if c := scheduledCondition(&p); p.Spec.NodeName == "" && (c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "Insufficient cpu")) {
				return fmt.Errorf("%s has the message %q", p.Name, c.Message)
			}
		}
		return nil
	})
	s.simulated("n1", 1)
	s.awaitBound("g", 4)
}

func scheduledCondition(p *corev1.Pod) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c
		}
	}
	return corev1.PodCondition{}
}

func (s *stage) awaitRunning(group string, n int) {
	s.Helper()
	s.Await(group+" runs", func() error {
		running := 0
		for _, p := range s.pods(group) {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != n {
			return fmt.Errorf("%d of %d pods do", running, n)
		}
		return nil
	})
}

// TestFinishedMembersCount verifies that finished pods count towards the minimum of a gang: if the last pod of a gang
// is lost after the others have finished, its replacement starts without further pods.
func TestFinishedMembersCount(t *testing.T) {
	s := sharedStage(t)
	s.simulated("n", 3)
	s.queue("q", "", 0)
	s.group("g", "q", 3, "1")
	s.awaitRunning("g", 3)
	s.succeed("g-0")
	s.succeed("g-1")
	s.group("others", "q", 2, "1")
	s.awaitBound("others", 2) // no room remains for three more pods
	s.remove("g-2")
	s.member("g-3", "g", "q", "1") // another name, because KWOK may delete a pod named g-2 again
	s.awaitPod("g-3")
}

// TestReplacementGoesFirst verifies that a gang that lost a pod gets the room for its replacement before groups that
// otherwise come earlier in the order, even before a group that may preempt others.
func TestReplacementGoesFirst(t *testing.T) {
	s := sharedStage(t)
	s.node("n", 4, nil)
	s.node("m", 1, nil)
	s.queue("other", "", 0)
	s.queue("low", "", 0, protected)
	s.queue("high", "", 5)
	s.group("g", "low", 2, "2")
	s.awaitBound("g", 2)
	s.group("other", "other", 1, "1")
	s.awaitBound("other", 1)
	s.group("first", "high", 1, "2")
	s.awaitRefused("first", scheduling.ReasonNoRoom)
	s.askToEnd("g-1")
	s.member("g-1b", "g", "low", "2")
	s.Await("the scheduler has tried the replacement", func() error {
		p := &corev1.Pod{}
		s.Must(s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "g-1b"}, p))
		if c := scheduledCondition(p); c.Message == "" {
			return fmt.Errorf("conditions %v", p.Status.Conditions)
		}
		return nil
	})
	s.remove("g-1")
	s.awaitPod("g-1b")
	s.awaitRefused("first", scheduling.ReasonNoRoom)
}

// TestPartlyBoundGangIsCompletedOrEvicted verifies that a scheduler completes a gang that its predecessor left partly
// bound, or evicts the gang if it cannot be completed.
func TestPartlyBoundGangIsCompletedOrEvicted(t *testing.T) {
	t.Parallel()
	for name, room := range map[string]bool{"completed": true, "evicted": false} {
		t.Run(name, func(t *testing.T) {
			s := sharedStage(t)
			s.node("n", map[bool]int{true: 6, false: 4}[room], nil)
			s.queue("q", "", 0)
			s.podGroup("g", "q", 3)
			// The first pod fits on no node, so that the scheduler does not start the gang before the test binds that
			// pod.
			s.member("g-0", "g", "q", "2", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "none"} })
			s.member("g-1", "g", "q", "2")
			s.member("g-2", "g", "q", "2")
			s.Must(s.Core.CoreV1().Pods(s.Namespace).Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "g-0"},
				Target: corev1.ObjectReference{Kind: "Node", Name: s.own("n")}}, metav1.CreateOptions{}))
			if room {
				s.awaitBound("g", 3)
				return
			}
			s.Await("the running pod is evicted", func() error {
				if got := s.evicted(); !slices.Equal(got, []string{"g-0"}) {
					return fmt.Errorf("evicted are %v", got)
				}
				return nil
			})
			s.remove("g-0")
			s.awaitRefused("g", scheduling.ReasonNotEnoughMembers)
		})
	}
}
