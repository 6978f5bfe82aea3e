package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func memory(amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(amount)
	}
}

// awaitLaterThan waits until a new object would have a later creation time than a group. Creation times have a
// resolution of one second.
func (s *stage) awaitLaterThan(group string) {
	s.Helper()
	pg := &scheduling.PodGroup{}
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: group}, pg))
	<-time.After(time.Until(pg.CreationTimestamp.Add(time.Second)))
}

// TestFirstInOrderGetsTheRoom verifies that, if two groups wait for the same room, the first one in order gets it when
// it becomes free.
func TestFirstInOrderGetsTheRoom(t *testing.T) {
	t.Parallel()
	// z-first is the older group, although its name sorts last.
	tests := map[string]struct {
		queues func(*stage)
		runs   func(*stage)
		first  string // the queue of the first group
		second string
		spec   func(name string, g *scheduling.PodGroupSpec)
		want   string
	}{
		"age": {first: "a", second: "a", want: "z-first"},
		"group priority before age": {first: "a", second: "a", want: "a-second",
			spec: func(name string, g *scheduling.PodGroupSpec) {
				g.Priority = map[string]int32{"z-first": 3, "a-second": 7}[name]
			}},
		"share before group priority": {first: "a", second: "b", want: "a-second",
			spec: func(name string, g *scheduling.PodGroupSpec) {
				g.Priority = map[string]int32{"z-first": 9}[name]
			},
			runs: func(s *stage) { s.group("ra", "a", 1, "1") }},
		"queue priority before share": {first: "a", second: "c", want: "a-second",
			runs: func(s *stage) { s.group("rc", "c", 1, "1") }},
		// Queue A uses cpu 3/6 and memory 5/8; queue B uses cpu 3/8 and memory 1/2.
		"the example of the specification": {first: "qa", second: "qb", want: "a-second",
			queues: func(s *stage) {
				quota := func(cpu, mem string) func(*scheduling.QueueSpec) {
					return func(q *scheduling.QueueSpec) {
						q.Quota.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(mem)}
					}
				}
				s.queue("qa", "", 0, protected, quota("6", "8Gi"))
				s.queue("qb", "", 0, protected, quota("8", "2Gi"))
			},
			runs: func(s *stage) {
				s.group("ra", "qa", 1, "3", memory("5Gi"))
				s.group("rb", "qb", 1, "3", memory("1Gi"))
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := sharedStage(t)
			s.node("n", 8, nil)
			s.queue("a", "", 0, protected)
			s.queue("b", "", 0, protected)
			s.queue("c", "", 1, protected)
			s.queue("full", "", 0, protected)
			if test.queues != nil {
				test.queues(s)
			}
			free := 8
			if test.runs != nil {
				test.runs(s)
				for _, p := range s.all() {
					s.awaitPod(p.Name)
					free -= int(p.Spec.Containers[0].Resources.Requests.Cpu().Value())
				}
			}
			s.group("last", "full", 1, "1") // last occupies the room of one group
			s.group("rest", "full", 1, resource.NewQuantity(int64(free-1), resource.DecimalSI).String())
			s.awaitBound("last", 1)
			s.awaitBound("rest", 1)
			wait := func(name, queue string) {
				s.podGroup(name, queue, 1, func(g *scheduling.PodGroupSpec) {
					if test.spec != nil {
						test.spec(name, g)
					}
				})
				s.members(name, queue, 1, "1")
				s.awaitRefused(name, scheduling.ReasonNoRoom)
			}
			wait("z-first", test.first)
			s.awaitLaterThan("z-first")
			wait("a-second", test.second)
			s.end("last")
			s.awaitBound(test.want, 1)
			s.awaitRefused(map[string]string{"z-first": "a-second", "a-second": "z-first"}[test.want], scheduling.ReasonNoRoom)
		})
	}
}
