package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// free is a queue that all namespaces may use.
const free = "free"

// way is a request that would put an object into a queue. If the API server refuses the request from every user,
// refusal is a part of its text; otherwise it is empty.
type way struct {
	name string
	// try sends the request to the API server with the client.
	try     func(s *stage, as client.Client, queue string) error
	refusal string
}

// right is a user who may or may not use a queue, as ok says.
type right struct {
	name, queue string
	as          client.Client
	ok          bool
}

// TestEveryWayIntoAQueueChecksTheRight verifies, for each kind of object and each field that determines a queue, that
// the API server checks whether the user who sends the request may use the queue, or refuses the request from every
// user.
func TestEveryWayIntoAQueueChecksTheRight(t *testing.T) {
	labelled := func(team string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
	}
	s := ruleStage(t, map[string]scheduling.QueueSpec{"vip": {}, free: {NamespaceSelector: &metav1.LabelSelector{}},
		"of-team-a": {NamespaceSelector: labelled("a")}, "of-team-b": {NamespaceSelector: labelled("b")}})
	nobody, user, wrong := s.as("nobody"), s.as("user"), s.as("wrong")
	s.mayUse("user", "vip")
	s.mayUse("wrong", free)
	s.Await("the right to use the queue is in force", func() error {
		return user.Create(t.Context(), s.membersOf("vip")["PodGroup"], client.DryRunAll)
	})
	rights := []right{
		{"no right", "vip", nobody, false},
		{"the right to another queue", "vip", wrong, false},
		{"the namespace of another queue", "of-team-b", nobody, false},
		{"the right to use it", "vip", user, true},
		{"the namespace", "of-team-a", nobody, true},
		{"all rights", "vip", s.Client, true},
		{"no queue of that name", "missing", nobody, true}, // the object waits until the queue exists
	}
	seen := map[string]bool{}
	for kind, ways := range allWays() {
		seen[kind] = true
		for _, w := range ways {
			for _, r := range rights {
				t.Run(kind+"/"+w.name+"/"+r.name, func(t *testing.T) {
					err := w.try(s.with(t), r.as, r.queue)
					if w.refusal == "" {
						err = expect(err, r.ok, r.queue)
					} else if err == nil || !strings.Contains(err.Error(), w.refusal) {
						err = fmt.Errorf("the answer is %w, want one with %q", err, w.refusal)
					} else {
						err = nil
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	for _, k := range kinds.All {
		if !seen[k.Name] {
			t.Errorf("no request for a %s was tried", k.Name)
		}
	}
}

// expect returns an error unless err is the right answer to a request of a user who may (ok) or may not use the queue.
func expect(err error, ok bool, queue string) error {
	switch {
	case ok && err != nil:
		return fmt.Errorf("refused: %w", err)
	case !ok && err == nil:
		return errors.New("accepted")
	case !ok && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "queue "+queue+" is not for namespace "+team)):
		return fmt.Errorf("refused with another message: %w", err)
	}
	return nil
}

func allWays() map[string][]way {
	all := map[string][]way{
		"Pod":         podWays(),
		"PodGroup":    {{name: "its spec", try: creates("PodGroup")}, {name: "a change of its spec", try: moves("PodGroup", "spec", "queue")}},
		"TensorBoard": {{name: "its spec", try: creates("TensorBoard")}, {name: "a change of its spec", try: moves("TensorBoard", "spec", "scheduler", "t9kScheduler", "queue")}},
	}
	for _, k := range kinds.All {
		all[k.Name] = jobWays(k)
	}
	return all
}

// creates returns a request to create an object of a kind whose spec or label names the queue.
func creates(kind string) func(*stage, client.Client, string) error {
	return func(s *stage, as client.Client, queue string) error {
		return as.Create(s.Context(), s.membersOf(queue)[kind], client.DryRunAll)
	}
}

// moves returns a request to move a live object from the queue free to another queue. field is the path of the field
// that names the queue.
func moves(kind string, field ...string) func(*stage, client.Client, string) error {
	return func(s *stage, as client.Client, queue string) error {
		o := asMap(s, s.membersOf(free)[kind])
		s.Must(s.Client.Create(s.Context(), o))
		s.Must(unstructured.SetNestedField(o.Object, queue, field...))
		return as.Update(s.Context(), o, client.DryRunAll)
	}
}

// asMap returns a deep copy of an object in unstructured form.
func asMap(s *stage, o client.Object) *unstructured.Unstructured {
	gvk, err := s.Client.GroupVersionKindFor(o)
	s.Must(err)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	s.Must(err)
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(fields)}
	u.SetGroupVersionKind(gvk)
	return u
}

func podWays() []way {
	pod := func(change func(p *corev1.Pod, queue string)) func(*stage, client.Client, string) error {
		return func(s *stage, as client.Client, queue string) error {
			p := podOf(map[string]string{})
			change(p, queue)
			return as.Create(s.Context(), p, client.DryRunAll)
		}
	}
	return []way{
		{name: "a label", try: creates("Pod")},
		{name: "a label, and a group", try: pod(func(p *corev1.Pod, queue string) {
			p.Labels = map[string]string{scheduling.LabelQueue: queue, scheduling.LabelGroupName: "any"}
		})},
		{name: "a label, with another scheduler", try: pod(func(p *corev1.Pod, queue string) {
			p.Labels[scheduling.LabelQueue], p.Spec.SchedulerName = queue, corev1.DefaultSchedulerName
		})},
		{name: "a label that it gets later", try: relabels(scheduling.SchedulerName), refusal: "cannot change on a live pod"},
		{name: "a label that it gets later, with another scheduler", try: relabels(corev1.DefaultSchedulerName), refusal: "cannot change on a live pod"},
	}
}

// relabels returns a request to put a live pod of the named scheduler into a queue by adding the label.
func relabels(scheduler string) func(*stage, client.Client, string) error {
	return func(s *stage, as client.Client, queue string) error {
		p := podOf(map[string]string{"mine": "yes"})
		p.Spec.SchedulerName = scheduler
		s.Must(s.Client.Create(s.Context(), p))
		p.Labels[scheduling.LabelQueue] = queue
		return as.Update(s.Context(), p, client.DryRunAll)
	}
}

// jobWays returns the requests for a kind of job: they set its own queue, the queue of its TensorBoard, or fields of
// its templates.
func jobWays(k kinds.Kind) []way {
	ways := []way{
		{name: "its spec", try: creates(k.Name)},
		{name: "a change of its spec", try: moves(k.Name, "spec", "scheduler", "t9kScheduler", "queue"), refusal: "cannot change on a live job"},
		{name: "a queue later", try: getsQueue(k.Name), refusal: "cannot change on a live job"},
	}
	if k.Training != nil {
		ways = append(ways, way{name: "its TensorBoard", try: func(s *stage, as client.Client, queue string) error {
			job := asMap(s, s.membersOf(free)[k.Name])
			s.Must(unstructured.SetNestedField(job.Object, map[string]any{"image": "none", "trainingLogFilesets": []any{"t9k://pvc/logs/here"},
				"scheduler": map[string]any{"t9kScheduler": map[string]any{"queue": queue}}}, "spec", "tensorboardSpec"))
			return as.Create(s.Context(), job, client.DryRunAll)
		}})
	}
	for _, gang := range []bool{false, true} {
		for _, name := range slices.Sorted(maps.Keys(templates(""))) {
			if !gang && name == "a node" {
				continue // a job without the t9k-scheduler may choose the node in a template
			}
			if gang && name == "the scheduler" {
				continue // the spec names the same scheduler
			}
			with, refusal := "", "leave them out of the templates"
			if gang {
				with = ", in a free queue"
			}
			switch name {
			case "the scheduler":
				refusal = "leave schedulerName out of the templates"
			case "a node":
				refusal = "leave nodeName out of the templates"
			}
			ways = append(ways, way{name: "a template: " + name + with, refusal: refusal, try: fromTemplate(k.Name, name, gang)})
		}
	}
	return ways
}

// templates returns, by name, fields of pod templates. Because the operator creates the pods with its own rights, these
// fields could put a job's pods into a queue that the requester may not use, or exceed the quota of a queue.
func templates(queue string) map[string]map[string]any {
	labels := func(l map[string]any) map[string]any { return map[string]any{"metadata": map[string]any{"labels": l}} }
	return map[string]map[string]any{
		"the label of a queue":  labels(map[string]any{scheduling.LabelQueue: queue}),
		"the label of a group":  labels(map[string]any{scheduling.LabelGroupName: "any"}),
		"the label of a role":   labels(map[string]any{scheduling.LabelRole: "any"}),
		"the label of a job":    labels(map[string]any{"batch.tensorstack.dev/job-name": "any"}),
		"another label of ours": labels(map[string]any{tensorboard.LabelTensorBoard: "any"}),
		"an annotation of ours": {"metadata": map[string]any{"annotations": map[string]any{"scheduler.tensorstack.dev/any": "any"}}},
		"the scheduler":         {"spec": map[string]any{"schedulerName": scheduling.SchedulerName}},
		"a node":                {"spec": map[string]any{"nodeName": "any"}},
	}
}

// fromTemplate returns a request to create a job. The template of its last role has the fields that templates returns
// under the name change. If gang is true, the job is in the queue free; otherwise it names no queue.
func fromTemplate(kind, change string, gang bool) func(*stage, client.Client, string) error {
	return func(s *stage, as client.Client, queue string) error {
		job := asMap(s, s.membersOf(free)[kind])
		if !gang {
			unstructured.RemoveNestedField(job.Object, "spec", "scheduler")
		}
		roles := job.Object["spec"].(map[string]any)["replicaSpecs"].([]any)
		template := roles[len(roles)-1].(map[string]any)["template"].(map[string]any)
		for part, fields := range templates(queue)[change] {
			into, _ := template[part].(map[string]any)
			if into == nil {
				into = map[string]any{}
			}
			maps.Copy(into, fields.(map[string]any))
			template[part] = into
		}
		return as.Create(s.Context(), job, client.DryRunAll)
	}
}

// getsQueue returns a request to set the queue of a live job that names none.
func getsQueue(kind string) func(*stage, client.Client, string) error {
	return func(s *stage, as client.Client, queue string) error {
		job := asMap(s, s.membersOf(free)[kind])
		unstructured.RemoveNestedField(job.Object, "spec", "scheduler")
		s.Must(s.Client.Create(s.Context(), job))
		s.Must(unstructured.SetNestedField(job.Object, queue, "spec", "scheduler", "t9kScheduler", "queue"))
		return as.Update(s.Context(), job, client.DryRunAll)
	}
}
