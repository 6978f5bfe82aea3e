package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestFailedPodsAreClassifiedByWhatEndedThem verifies the classification of the states that kubelet 1.36 and the
// controllers write on failed pods.
func TestFailedPodsAreClassifiedByWhatEndedThem(t *testing.T) {
	killed := []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}}}
	// A container that the kubelet has lost track of has neither a start nor an end time.
	untracked := []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}}}
	running := []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	waiting := []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
	// The kubelet removes the containers of a pod that it evicts, even before it has read how they ended. It then first
	// reports a container that waits to be created and was terminated before.
	removed := []corev1.ContainerStatus{{Name: "main",
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		LastTerminationState: untracked[0].State}}
	creating := []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	target := func(reason string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
	}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   ending
	}{
		"exit code":                        {corev1.PodStatus{ContainerStatuses: killed}, failed},
		"emptyDir or ephemeral limit":      {corev1.PodStatus{Reason: "Evicted", ContainerStatuses: killed}, failed},
		"limit, container lost track of":   {corev1.PodStatus{Reason: "Evicted", ContainerStatuses: untracked}, failed},
		"limit, end not written yet":       {corev1.PodStatus{Reason: "Evicted", ContainerStatuses: running}, failed},
		"limit, container removed":         {corev1.PodStatus{Reason: "Evicted", ContainerStatuses: removed}, failed},
		"limit, start not written yet":     {corev1.PodStatus{Reason: "Evicted", ContainerStatuses: creating}, failed},
		"limit broken by init container":   {corev1.PodStatus{Reason: "Evicted", InitContainerStatuses: killed, ContainerStatuses: waiting}, failed},
		"node pressure":                    {corev1.PodStatus{Reason: "Evicted", ContainerStatuses: killed, Conditions: target("TerminationByKubelet")}, disrupted},
		"node under pressure refuses":      {corev1.PodStatus{Reason: "Evicted"}, disrupted},
		"critical pod":                     {corev1.PodStatus{Reason: "Preempting", ContainerStatuses: killed, Conditions: target("TerminationByKubelet")}, disrupted},
		"node shuts down":                  {corev1.PodStatus{Reason: "Terminated", ContainerStatuses: killed, Conditions: target("TerminationByKubelet")}, disrupted},
		"node that shuts down refuses":     {corev1.PodStatus{Reason: "NodeShutdown"}, disrupted},
		"preemption":                       {corev1.PodStatus{ContainerStatuses: killed, Conditions: target("PreemptionByScheduler")}, disrupted},
		"taint":                            {corev1.PodStatus{ContainerStatuses: killed, Conditions: target("DeletionByTaintManager")}, disrupted},
		"lost node, garbage collected":     {corev1.PodStatus{Reason: "NodeLost", Conditions: target("DeletionByPodGC")}, disrupted},
		"failed after its node came back":  {corev1.PodStatus{Reason: "NodeLost", ContainerStatuses: killed}, failed},
		"pod's own activeDeadlineSeconds":  {corev1.PodStatus{Reason: "DeadlineExceeded", ContainerStatuses: killed}, failed},
		"no room left for CPU":             {corev1.PodStatus{Reason: "OutOfcpu"}, disrupted},
		"no room left for GPUs":            {corev1.PodStatus{Reason: "OutOfnvidia.com/gpu"}, disrupted},
		"refused after kubelet restart":    {corev1.PodStatus{Reason: "NodeAffinity", ContainerStatuses: killed}, disrupted},
		"NoExecute taint on admission":     {corev1.PodStatus{Reason: "TaintToleration"}, disrupted},
		"host port taken":                  {corev1.PodStatus{Reason: "NodePorts"}, disrupted},
		"device plugin not there":          {corev1.PodStatus{Reason: "UnexpectedAdmissionError"}, disrupted},
		"resources not aligned":            {corev1.PodStatus{Reason: "TopologyAffinityError"}, disrupted},
		"too many volumes at the node":     {corev1.PodStatus{Reason: "VolumeAttachmentLimitExceeded"}, disrupted},
		"kubelet does not know its node":   {corev1.PodStatus{Reason: "InvalidNodeInfo"}, disrupted},
		"operating system that never fits": {corev1.PodStatus{Reason: "PodOSNotSupported"}, failed},
		"forbidden sysctl":                 {corev1.PodStatus{Reason: "SysctlForbidden"}, failed},
		"AppArmor":                         {corev1.PodStatus{Reason: "AppArmor"}, failed},
		"condition that was taken back": {corev1.PodStatus{ContainerStatuses: killed, Conditions: []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, Reason: "PreemptionByScheduler"}}}, failed},
	} {
		t.Run(name, func(t *testing.T) {
			test.status.Phase = corev1.PodFailed
			if got := (&Role{}).classify(&corev1.Pod{Status: test.status}); got != test.want {
				t.Errorf("classified as %d, want %d", got, test.want)
			}
		})
	}
}

// TestBrokenStorageLimitIsCharged verifies that evictions for exceeding a pod's own storage limit count towards the
// restart limit, because a replica that fills its volume does so after every restart.
func TestBrokenStorageLimitIsCharged(t *testing.T) {
	p := newPlay(t, 1, 1).pass().run(0).pass()
	p.exit(0, 137).pod(0).Status.Reason = "Evicted"
	p.pass().want(batch.JobPending, 1).pass().run(0).pass()
	p.exit(0, 137).pod(0).Status.Reason = "Evicted"
	p.pass().want(batch.JobFailed, 1)
	if got := p.stat.Tasks[0].Replicas[0].Reason; got != "Evicted" {
		t.Errorf("the replica's reason is %q, want Evicted", got)
	}
}

// TestNativeSidecarsDoNotDecide verifies that the exit codes and end times of native sidecars are ignored, because the
// kubelet stops native sidecars after the other containers have ended. The exit code of an init container that failed
// counts.
func TestNativeSidecarsDoNotDecide(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	at := func(code int32, second int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error",
			StartedAt: metav1.NewTime(start), FinishedAt: metav1.NewTime(start.Add(time.Duration(second) * time.Second))}}
	}
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}}},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "setup", State: at(0, 1)}, {Name: "proxy", State: at(143, 9)}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", State: at(3, 5)}},
		},
	}
	if code := (&Role{}).exitCode(pod); code == nil || *code != 3 {
		t.Errorf("the exit code is %v, want that of the main container, 3", code)
	}
	if _, finished := (&Role{}).lifetime(pod); finished != start.Add(5*time.Second) {
		t.Errorf("the replica ended at %s, want the end of its main container", finished)
	}
	pod.Status.InitContainerStatuses[0].State = at(7, 1)
	if code := (&Role{}).exitCode(pod); *code != 7 {
		t.Errorf("the exit code is %d, want that of the init container that failed, 7", *code)
	}
}
