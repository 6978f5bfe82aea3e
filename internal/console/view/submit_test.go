package view

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/testing/golden"
)

// gpuJob returns a job with some pods in a queue. Each pod requests GPUs and four CPUs, through its limits only.
func gpuJob(queue string, pods int, gpus string) *engine.Job {
	limits := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus), "cpu": resource.MustParse("4")}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}}}
	return &engine.Job{Roles: []engine.Role{{Type: "worker", Replicas: pods, Template: template}}, Gang: &engine.Gang{Queue: queue, Priority: 5, MinMember: int32(pods)}}
}

// cluster returns a cluster of two nodes with four GPUs each, and three queues, one of them closed. A pod on one of the
// nodes uses two GPUs.
func cluster() (*QueuesInput, *NodesInput) {
	list := func(gpus string) corev1.ResourceList {
		return corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus), "cpu": resource.MustParse("32"), "pods": resource.MustParse("100")}
	}
	node := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}, Status: corev1.NodeStatus{Allocatable: list("4"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	}
	queue := func(name, quota, used string, closed bool) *scheduling.Queue {
		q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{Closed: closed, Quota: scheduling.QueueQuota{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(quota)}}}}
		q.Status.Allocated = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(used)}
		return q
	}
	busy := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "busy"}, Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}}}
	return &QueuesInput{Queues: []*scheduling.Queue{queue("research", "7", "2", false), queue("large", "100", "0", false), queue("shut", "100", "0", true)}},
		&NodesInput{Nodes: []*corev1.Node{node("a"), node("b")}, Pods: []*corev1.Pod{busy}}
}

func TestRoomSaysWhetherAJobStarts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(in *SubmitInput, j *engine.Job)
		job    *engine.Job
		want   string
		why    string
	}{
		"room":             {nil, gpuJob("research", 2, "2"), startsNow, "Queue research has room for it."},
		"more than left":   {nil, gpuJob("research", 3, "2"), waits, "It needs 6 nvidia.com/gpu, and queue research has 5 left."},
		"more than quota":  {nil, gpuJob("research", 4, "2"), neverFits, "It needs 8 nvidia.com/gpu, and the whole quota of queue research is 7."},
		"busy nodes":       {nil, gpuJob("large", 2, "4"), waits, "The nodes have room for 1 of its 2 pods now."},
		"too few nodes":    {nil, gpuJob("large", 3, "3"), tooFew, "The nodes would have room for 2 of its 3 pods if nothing else ran."},
		"a pod too large":  {nil, gpuJob("large", 1, "5"), tooFew, "The nodes would have room for 0 of its 1 pods if nothing else ran."},
		"a closed queue":   {nil, gpuJob("shut", 1, "1"), waits, "Queue shut is closed: no new group starts in it."},
		"no such queue":    {nil, gpuJob("nowhere", 1, "1"), waits, "There is no queue nowhere."},
		"part of its pods": {func(_ *SubmitInput, j *engine.Job) { j.Gang.MinMember = 2 }, gpuJob("research", 3, "2"), startsNow, "Queue research has room for it."},
		"paused":           {func(_ *SubmitInput, j *engine.Job) { j.Pause = true }, gpuJob("shut", 1, "1"), notYet, "The job is paused: it starts when it is resumed."},
		"no queue":         {func(_ *SubmitInput, j *engine.Job) { j.Gang = nil }, gpuJob("", 1, "1"), startsNow, "It has no queue: the cluster's default scheduler places its pods one by one."},
		"cordoned nodes": {func(in *SubmitInput, _ *engine.Job) {
			for i, n := range in.Nodes.Nodes {
				in.Nodes.Nodes[i] = n.DeepCopy()
				in.Nodes.Nodes[i].Spec.Unschedulable = true
			}
		}, gpuJob("research", 2, "2"), tooFew, "The nodes would have room for 0 of its 2 pods if nothing else ran."},
		"hidden nodes": {func(in *SubmitInput, _ *engine.Job) { in.Nodes.Hidden = []Hidden{{What: "nodes"}} }, gpuJob("large", 3, "4"), startsNow, "Queue large has room for it."},
		"hidden queues": {func(in *SubmitInput, _ *engine.Job) { in.Queues = &QueuesInput{Hidden: []Hidden{{What: "queues"}}} }, gpuJob("large", 1, "1"), notPlanned,
			"What you may see does not tell whether queue large has room."},
		"a node that is not ready": {func(in *SubmitInput, _ *engine.Job) { in.Nodes.Nodes[1].Status.Conditions = nil }, gpuJob("large", 1, "3"), waits, "The nodes have room for 0 of its 1 pods now."},
		"a node selector": {func(_ *SubmitInput, j *engine.Job) {
			j.Roles[0].Template.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "a"}
		}, gpuJob("large", 1, "3"), waits, "The nodes have room for 0 of its 1 pods now."},
		"taints": {func(in *SubmitInput, j *engine.Job) {
			in.Nodes.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "gpus", Effect: corev1.TaintEffectNoSchedule}}
			in.Nodes.Nodes[1].Spec.Taints = []corev1.Taint{{Key: "old", Effect: corev1.TaintEffectNoExecute}}
			j.Roles[0].Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpus", Operator: corev1.TolerationOpExists}}
		}, gpuJob("large", 1, "3"), waits, "The nodes have room for 0 of its 1 pods now."},
		"a taint that only asks": {func(in *SubmitInput, _ *engine.Job) {
			in.Nodes.Nodes[1].Spec.Taints = []corev1.Taint{{Key: "old", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, gpuJob("large", 1, "3"), startsNow, "Queue large has room for it."},
		"node affinity": {func(_ *SubmitInput, j *engine.Job) {
			terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a", "b"}}}}}
			j.Roles[0].Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}, gpuJob("large", 1, "1"), tooFew, "The nodes would have room for 0 of its 1 pods if nothing else ran."},
		"others wait": {func(in *SubmitInput, _ *engine.Job) {
			in.Queues.Waiting = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: types.UID("w"), Labels: map[string]string{scheduling.LabelGroupName: "g"}}}}
			in.Queues.Groups = []*scheduling.PodGroup{{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Spec: scheduling.PodGroupSpec{Queue: "large", Priority: 5}}}
		}, gpuJob("large", 1, "1"), maybeNow, "There is room, and 1 group waits in the queue before it."},
	} {
		t.Run(name, func(t *testing.T) {
			in := &SubmitInput{}
			in.Queues, in.Nodes = cluster()
			if c.change != nil {
				c.change(in, c.job)
			}
			if r := in.room(c.job); r.Verdict != c.want || r.Why != c.why {
				t.Errorf("it %s: %s\nwant %s: %s", r.Verdict, r.Why, c.want, c.why)
			}
		})
	}
}

func TestSubmitPages(t *testing.T) {
	queues, nodes := cluster()
	const text = "apiVersion: v1\nkind: GenericJob\nmetadata: {name: mnist}\nspec: {}\n"
	diags := []SubmitDiagnostic{{2, "kind", "wrong"}, {2, "kind", "wrong again"}, {4, "spec.replicaSpecs", "Required value"}}
	objects := []Submitted{{Ref: "configmap/data", Line: 1}, {Ref: "genericjob/mnist", Namespace: "red", Line: 2, Job: gpuJob("research", 3, "2"), Rendered: []Rendered{{"pod/mnist-worker-0", "kind: Pod"}}, More: 2}}
	for name, in := range map[string]*SubmitInput{
		"submit-empty":     {Namespace: "red", Jobs: []JobRow{{Namespace: "red"}, {Namespace: "blue"}, {Namespace: "red"}}},
		"submit-no-object": {Checked: true, Namespace: "red"},
		"submit-errors":    {Checked: true, Namespace: "red", Text: text, Errors: diags, Objects: objects[:1]},
		"submit-template":  {Checked: true, Namespace: "red", Text: "name: {{ .name }}\n", Errors: []SubmitDiagnostic{{1, "", "not valid YAML"}}},
		"submit-valid":     {Checked: true, Namespace: "red", Text: text, Objects: objects, Warnings: []SubmitDiagnostic{{3, "metadata", "warning: no effect"}}},
		"submit-problem":   {Checked: true, Namespace: "red", Text: text, Objects: objects[1:], Names: true, Problem: "the API server does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			in.Queues, in.Nodes = queues, nodes
			golden.Compare(t, "testdata/"+name+".golden", asYAML(t, Submit(in)))
		})
	}
}
