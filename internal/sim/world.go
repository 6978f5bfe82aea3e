// Package sim runs the real reconciler of jobs in a simulated world: an API server in memory (api.go), a network that
// loses calls and answers, late caches (cache.go), operators that die at any call (operator.go), kubelets, users and
// evictions. It checks every status, pod and deletion against what really happened (check.go). A world is a function of
// its seed. Start reading at Run.
package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// truth is the true history of one pod, whether or not any process has observed it.
type truth struct {
	selfEnded bool // the pod ended by itself before its deletion was requested
	success   bool
	exit      int32
	// created is when the pod was created.
	created time.Time
	// ambiguous is true if the pod ended by itself and its end may or may not count: the pod was removed and the end
	// may not have been observed, or debug mode discarded the end. It is also true for a pod that a deposed operator
	// created with outdated counts.
	ambiguous bool
	// watched is true if a user deleted the pod after it had succeeded, and the leader's watch shows the success before
	// the deletion. creation and deletion are the positions of these events in the history of the pods with this name.
	watched            bool
	creation, deletion int
	// deleted is the time at which a user deleted the pod.
	deleted time.Time
	// at is the time at which the pod ended. reported is true once the API server has the end.
	at       time.Time
	reported bool
	// restarts is the number of restarts that the pod records.
	restarts int32
	// late is true if the pod was created after the job had finished.
	late bool
}

// jobName is the name of the job, of its Service and of its PodGroup.
const jobName = "j"

// world is the state behind the API server, and its history.
type world struct {
	rng  *rand.Rand
	now  time.Time
	kind kinds.Kind
	// obj is the job as the API server has it; nil before it is created and once it is deleted. It is never modified.
	obj kinds.Object
	// job is the converted form of obj, and status is its status. Both remain after obj is deleted.
	job    engine.Job
	status *batch.JobStatus
	// version is the last resourceVersion of any object.
	version int
	pods    map[string]*corev1.Pod
	// objects holds the job's Service and its PodGroup, by kind. They are never modified.
	objects map[string]client.Object
	lost    map[string]bool // lost nodes
	// skew is how far the clocks of the nodes are ahead of the others.
	skew    time.Duration
	refuses bool // a quota refuses creations
	nextUID int
	// codes are the exit codes of failures.
	codes []int32

	jobLog    []kinds.Object
	podLog    map[string][]*corev1.Pod // the versions of each pod, as caches keep them; nil: deleted
	objectLog map[string][]client.Object
	// reports are ends that kubelets have not reported yet, by pod.
	reports map[string]report

	past               map[string][]truth // per replica, oldest first, the current pod's last
	creates, operators int
	// readAt is when the operator that writes a status last read the pods from the API server.
	readAt time.Time
	inc    incidents
	// events counts the events of the job by their reasons.
	events map[batch.Reason]int32
	errs   []string
	trace  func(format string, args ...any) // nil: silent
}

func newWorld(rng *rand.Rand, trace func(string, ...any)) *world {
	return &world{
		rng: rng, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), status: &batch.JobStatus{}, version: 1, codes: []int32{1, 2, 3},
		pods: map[string]*corev1.Pod{}, objects: map[string]client.Object{}, podLog: map[string][]*corev1.Pod{},
		objectLog: map[string][]client.Object{}, reports: map[string]report{}, lost: map[string]bool{}, past: map[string][]truth{}, events: map[batch.Reason]int32{}, trace: trace,
	}
}

// submit creates the job.
func (w *world) submit(obj kinds.Object) {
	obj.SetNamespace("ns")
	obj.SetName(jobName)
	obj.SetUID("job")
	if w.trace != nil {
		text, _ := yaml.Marshal(obj)
		w.tracef("the job:\n%s", text)
	}
	w.changeJob(obj)
}

// changeJob sets the spec of the job. The caller must not use obj afterwards.
func (w *world) changeJob(obj kinds.Object) {
	obj.SetGeneration(obj.GetGeneration() + 1)
	if errs := w.kind.Validate(obj, kinds.Limits{}); len(errs) > 0 {
		panic(errs.ToAggregate())
	}
	w.obj, w.job = obj, *w.kind.Convert(obj)
	w.jobChanged()
}

func (w *world) fail(format string, args ...any) {
	w.tracef("WRONG: "+format, args...)
	w.errs = append(w.errs, fmt.Sprintf(format, args...))
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace("%s  %s", w.now.Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// jobChanged stores the next version of the job, with its current status.
func (w *world) jobChanged() {
	w.version++
	obj := w.obj.DeepCopyObject().(kinds.Object)
	obj.SetResourceVersion(strconv.Itoa(w.version))
	*w.kind.Status(obj) = *w.status
	w.obj = obj
	w.jobLog = append(w.jobLog, obj)
	w.tracef("job v%d: pause %t debug %t; status %s %s %+v", w.version, w.job.Pause, w.job.Debug, w.status.Phase, w.status.RunMode, w.status.Tasks)
}

func (w *world) podChanged(name string) {
	var c *corev1.Pod
	w.version++ // a deletion has a version too
	if p := w.pods[name]; p != nil {
		p.ResourceVersion = strconv.Itoa(w.version)
		c = trimmed(p)
		w.tracef("pod %s %s: %s on %q, deleting %t, %v", name, c.UID, c.Status.Phase, c.Spec.NodeName, c.DeletionTimestamp != nil, c.Annotations)
	} else {
		w.tracef("pod %s gone", name)
	}
	w.podLog[name] = append(w.podLog[name], c)
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// askDeletion requests the deletion of a pod as the API server does: an ended or unscheduled pod is removed
// immediately, and others get their grace period.
func (w *world) askDeletion(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		return
	}
	if pod.Spec.NodeName == "" {
		w.remove(pod.Name)
		return
	}
	if ended(pod) {
		at, none := stamp(w.now), int64(0)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &none
		w.podChanged(pod.Name)
		w.remove(pod.Name)
		return
	}
	grace := int64(30)
	at := stamp(w.now.Add(30 * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	w.podChanged(pod.Name)
}

func (w *world) remove(name string) {
	delete(w.pods, name)
	delete(w.reports, name)
	w.podChanged(name)
}

// createPod creates a pod and sets the fields that the API server sets.
func (w *world) createPod(created *corev1.Pod, deposed bool) error {
	if w.pods[created.Name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, created.Name)
	}
	if w.obj == nil {
		return notFound("jobs", jobName) // the garbage collector would delete the pod immediately
	}
	outdated := w.checkCreate(created, deposed)
	w.creates++
	created.UID = w.newUID()
	created.CreationTimestamp = stamp(w.now)
	pod := created.DeepCopy()
	pod.Status.Phase = corev1.PodPending
	w.pods[pod.Name] = pod
	restarts, _ := strconv.Atoi(pod.Annotations[batch.AnnotationRestarts])
	w.past[pod.Name] = append(w.past[pod.Name], truth{created: w.now, creation: len(w.podLog[pod.Name]), restarts: int32(restarts),
		late: finished(w.status), ambiguous: outdated})
	w.podChanged(pod.Name)
	created.ResourceVersion = pod.ResourceVersion
	return nil
}

func (w *world) newUID() types.UID {
	w.nextUID++
	return types.UID("u" + strconv.Itoa(w.nextUID))
}

// stamp returns a time in whole seconds, as the API server stores it.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// nodeStamp returns a time as the nodes, whose clocks may be wrong, write it.
func (w *world) nodeStamp(t time.Time) metav1.Time { return stamp(t.Add(w.skew)) }

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// toggleDebug flips the debug mode switch. The results so far may or may not count, depending on which process observes
// the switch first.
func (w *world) toggleDebug() {
	for name := range w.past {
		w.last(name).ambiguous = true
	}
	w.switchMode(w.job.Pause, !w.job.Debug)
}

// switchMode sets the switches of the run mode.
func (w *world) switchMode(pause, debug bool) {
	obj := w.obj.DeepCopyObject().(kinds.Object)
	*runModeOf(w.kind, obj) = &batch.RunMode{Pause: &batch.PauseMode{Enabled: &pause}, Debug: &batch.DebugMode{Enabled: &debug}}
	w.changeJob(obj)
}

func (w *world) last(name string) *truth {
	t := w.past[name]
	if len(t) == 0 {
		return &truth{}
	}
	return &t[len(t)-1]
}

// kubelet moves one pod to its next state.
func (w *world) kubelet(pod *corev1.Pod) {
	_, unreported := w.reports[pod.Name]
	switch {
	case w.lost[pod.Spec.NodeName]:
		return
	case unreported:
		w.report(pod.Name)
	case pod.DeletionTimestamp != nil && (ended(pod) || pod.Status.Phase == corev1.PodPending):
		w.finalize(pod)
	case pod.DeletionTimestamp != nil:
		w.end(pod, int32(w.rng.IntN(2)*143), w.now) // the container exits on SIGTERM, with 0 or not
	case ended(pod):
	case pod.Spec.NodeName == "":
		pod.Spec.NodeName = "node-" + strconv.Itoa(w.rng.IntN(3))
		if w.lost[pod.Spec.NodeName] {
			pod.Spec.NodeName = ""
			return
		}
		w.podChanged(pod.Name)
	case pod.Status.Phase == corev1.PodPending:
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = w.started(pod)
		w.podChanged(pod.Name)
		w.noteRun()
	case pod.Spec.ActiveDeadlineSeconds != nil:
		w.stop(pod)
	case decided(pod): // its sidecar runs forever
	case w.chance(5):
		w.sidecarEnds(pod)
	default:
		w.exit(pod)
	}
}

// stop ends a pod whose activeDeadlineSeconds has passed.
func (w *world) stop(pod *corev1.Pod) {
	pod.Status.Reason = "DeadlineExceeded"
	w.end(pod, 143, w.now)
}

// end ends all containers of a pod that still run, and thereby the pod. The pod has failed if a container has, or if it
// has a reason.
func (w *world) end(pod *corev1.Pod, code int32, at time.Time) {
	if len(pod.Status.ContainerStatuses) == 0 {
		pod.Status.ContainerStatuses = w.started(pod)
	}
	pod.Status.Phase = corev1.PodSucceeded
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		w.terminate(s, code, at)
		if s.State.Terminated.ExitCode != 0 || pod.Status.Reason != "" {
			pod.Status.Phase = corev1.PodFailed
		}
	}
	w.podChanged(pod.Name)
}

// finalize simulates the kubelet's final update of a deleted pod: it sets the grace period to 0 and the deletion
// timestamp to the current time. If the grace period is already 0, it removes the pod.
func (w *world) finalize(pod *corev1.Pod) {
	if *pod.DeletionGracePeriodSeconds == 0 {
		w.remove(pod.Name)
		return
	}
	at, none := stamp(w.now), int64(0)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &none
	w.podChanged(pod.Name)
}

// evict ends a pod as a kubelet under resource pressure does.
func (w *world) evict(pod *corev1.Pod) {
	if pod.Status.Phase != corev1.PodRunning || pod.Spec.ActiveDeadlineSeconds != nil {
		return
	}
	if _, unreported := w.reports[pod.Name]; unreported {
		return
	}
	w.inc.disturbed = w.now
	// A failure, or a success in the same second, cannot be distinguished from a consequence of the disruption.
	if main := mainOf(pod).State.Terminated; main != nil && (main.ExitCode != 0 || !main.FinishedAt.Before(new(w.nodeStamp(w.now)))) {
		w.last(pod.Name).ambiguous = true
	}
	pod.Status.Reason = "Evicted"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: corev1.PodReasonTerminationByKubelet, LastTransitionTime: w.nodeStamp(w.now)}}
	w.end(pod, 137, w.now)
}

// userDeletes deletes a pod as a user does, perhaps by force.
func (w *world) userDeletes(pod *corev1.Pod, force bool) {
	w.inc.disturbed = w.now
	if t := w.last(pod.Name); t.selfEnded {
		t.deletion, t.deleted = len(w.podLog[pod.Name]), w.now
		t.watched = engine.SucceededUndeleted(pod) && uidOf(w.status, pod.Name) == string(pod.UID) && !w.policy(pod.Name).OnSuccess
		t.ambiguous = t.ambiguous || !t.watched
	}
	if force {
		w.remove(pod.Name)
		return
	}
	w.askDeletion(pod)
}

// forgetWatched marks each success as ambiguous if the cache of a new leader already shows the deletion of its pod. No
// event shows that leader whether the success or the deletion came first.
func (w *world) forgetWatched(c *cache) {
	for name := range w.past {
		for i := range w.past[name] {
			t := &w.past[name][i]
			t.ambiguous = t.ambiguous || t.watched && c.podPos[name] > t.deletion
		}
	}
}

// uidOf returns the UID that a status records for a replica's pod; empty if it records none.
func uidOf(s *batch.JobStatus, name string) string {
	for _, t := range s.Tasks {
		for _, r := range t.Replicas {
			if r.Name == name {
				return r.UID
			}
		}
	}
	return ""
}
