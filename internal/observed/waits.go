package observed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// Wait says what a job, its group or some of its replicas wait for.
type Wait struct {
	// Who names the job, group or replicas that wait, for example "worker-0, worker-1". For names what they wait for,
	// for example "a node".
	Who, For string
	// Why is the reason as a sentence; empty if it is not known.
	Why string
}

// Waits returns what a job waits for, beginning with what the whole job waits for; empty if it waits for nothing. pods
// are the job's pods, groups are the PodGroups of all jobs, and unplaced are the pods of all jobs that wait for the
// t9k-scheduler. partial is true if the user may see only some of groups and unplaced.
func Waits(j *Job, pods []*corev1.Pod, groups []*scheduling.PodGroup, unplaced []*corev1.Pod, partial bool) []Wait {
	s := j.Status()
	finished, _ := Finished(s)
	switch {
	case finished || j.GetDeletionTimestamp() != nil:
		return ending(pods)
	case s.Phase == "":
		return []Wait{{"the job", "the operator", "The operator has not seen it yet."}}
	case s.Phase == batch.JobPaused:
		return append([]Wait{{"the job", "somebody to resume it", Explain(s)}}, ending(pods)...)
	}
	all := waitsOfGroup(j, groups, unplaced, partial)
	return append(all, waitsOfReplicas(s, pods, len(all) > 0)...)
}

// ending returns a Wait for the end of pods that are being deleted; nil if there are none.
func ending(pods []*corev1.Pod) []Wait {
	n := 0
	for _, p := range pods {
		if p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []Wait{{"the job", "the end of its pods", fmt.Sprintf("Pods that are terminating within their grace period: %d.", n)}}
}

// waitsOfGroup returns what the group of a job waits for: room in its queue and its turn. It adds what the first
// waiters ahead of it wait for. It returns nil if groups does not contain the job's group or the group is scheduled.
func waitsOfGroup(j *Job, groups []*scheduling.PodGroup, unplaced []*corev1.Pod, partial bool) []Wait {
	queue := j.Queue()
	i := slices.IndexFunc(groups, func(g *scheduling.PodGroup) bool { return g.Namespace == j.GetNamespace() && g.Name == j.GetName() })
	if i < 0 || Scheduled(groups[i]).Status == metav1.ConditionTrue {
		return nil
	}
	queue = cmp.Or(groups[i].Spec.Queue, queue, scheduling.DefaultQueue)
	all := []Wait{{"the group of its pods", "room in queue " + queue, cmp.Or(Scheduled(groups[i]).Message, "The scheduler has not tried it yet.")}}
	waiting := Waiters(queue, groups, unplaced)
	name := j.GetNamespace() + "/" + j.GetName()
	at := slices.IndexFunc(waiting, func(w Waiter) bool { return w.Name == name })
	if at > 0 || at == 0 && partial {
		all = append(all, Wait{"the group of its pods", "its turn", "It is " + Place(name, waiting, partial) + "."})
	}
	for _, w := range waiting[:max(0, min(at, maxNamed))] {
		all = append(all, Wait{w.Name + ", which is ahead", "room in queue " + queue, cmp.Or(w.Why, "The scheduler has not tried it yet.")})
	}
	return all
}

// waitsOfReplicas returns what the listed replicas wait for, with one entry for all replicas that wait for the same
// thing for the same reason. If withGroup is true, it leaves out replicas that wait for a node, because they wait with
// their group.
func waitsOfReplicas(s *batch.JobStatus, pods []*corev1.Pod, withGroup bool) []Wait {
	present := map[string]*corev1.Pod{}
	for _, p := range pods {
		present[string(p.UID)] = p
	}
	who := map[Wait][]string{}
	var order []Wait
	for i := range s.Tasks {
		for k := range s.Tasks[i].Replicas {
			r := &s.Tasks[i].Replicas[k]
			w := waitOf(r, present[r.UID])
			if w.For == "" || withGroup && w.For == forNode {
				continue
			}
			if who[w] == nil {
				order = append(order, w)
			}
			who[w] = append(who[w], fmt.Sprintf("%s-%d", s.Tasks[i].Type, RankOf(r.Name)))
		}
	}
	for i, w := range order {
		order[i].Who = several(who[w])
	}
	return order
}

const forNode = "a node"

// waitOf returns what a replica waits for, with an empty Who. For is empty too if the replica does not wait. p is the
// pod of the replica; nil if there is none.
func waitOf(r *batch.ReplicaStatus, p *corev1.Pod) Wait {
	switch {
	case r.Reason == engine.ReasonBackOff:
		return Wait{For: "its restart", Why: "Its last attempt has ended, and the delay before the next one is not over."}
	case r.Phase != batch.ReplicaCreating && r.Phase != batch.ReplicaPending:
		return Wait{}
	case p == nil && r.Phase == batch.ReplicaCreating:
		return Wait{For: "the operator to create its pod", Why: OneLine(r.Reason)}
	case p == nil:
		return Wait{For: "its pod to start", Why: Detail(r)}
	case p.Spec.NodeName == "":
		return Wait{For: forNode, Why: OneLine(whyPod(p))}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return Wait{For: "its containers to start", Why: strings.TrimSuffix(OneLine(w.Reason+": "+w.Message), ":")}
		}
	}
	return Wait{For: "its containers to start", Why: Detail(r)}
}

// several joins names, for example to "worker-0, worker-1, worker-2 and 5 more".
func several(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
