package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/queue"
)

// shapesOf returns the same shape or error for every pod and queue.
type shapesOf struct {
	shape *queue.Shape
	err   error
}

func (s shapesOf) OfPod(context.Context, string, map[string]string) (*queue.Shape, error) {
	return s.shape, s.err
}

func TestPodsAreLimitedByTheProfileOfTheirQueue(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	small := &queue.Shape{Queue: "q", Profile: "small", Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	unknown := &queue.Shape{Queue: "q", Profile: "small", Problem: "the ConfigMap has no such key"}
	for name, test := range map[string]struct {
		shapes    shapesOf
		cpu       string
		operation admissionv1.Operation
		refused   string
		warned    bool
	}{
		"small enough":               {shapes: shapesOf{shape: small}, cpu: "1"},
		"too large":                  {shapes: shapesOf{shape: small}, cpu: "2", refused: "2 cpu requested, 1 allowed"},
		"too large, but there":       {shapes: shapesOf{shape: small}, cpu: "2", operation: admissionv1.Update},
		"a queue without a shape":    {cpu: "100"},
		"a profile that is missing":  {shapes: shapesOf{shape: unknown}, cpu: "1", refused: "has no such key"},
		"queues that cannot be read": {shapes: shapesOf{err: errors.New("forbidden")}, cpu: "100", warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(test.cpu)}}}}}}
			raw, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "ns", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}}}
			if test.operation != "" {
				req.Operation = test.operation
			}
			got := (&podValidator{decoder: admission.NewDecoder(scheme), shapes: test.shapes}).Handle(t.Context(), req)
			if got.Allowed != (test.refused == "") || !got.Allowed && !strings.Contains(got.Result.Message, test.refused) || (len(got.Warnings) > 0) != test.warned {
				t.Errorf("allowed %t, %v, warnings %q", got.Allowed, got.Result, got.Warnings)
			}
		})
	}
}

// cluster is a fake client of the objects that a podHook reads and writes. broken is the error of List, and patches
// counts the writes.
type cluster struct {
	client.Client
	queues  []scheduling.Queue
	config  *admissionregistration.ValidatingWebhookConfiguration
	broken  error
	patches int
}

func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*scheduling.QueueList).Items = c.queues
	return c.broken
}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if c.config == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	c.config.DeepCopyInto(o.(*admissionregistration.ValidatingWebhookConfiguration))
	return nil
}

func (c *cluster) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	c.patches++
	c.config = o.(*admissionregistration.ValidatingWebhookConfiguration).DeepCopy()
	return nil
}

// TestPodHookFollowsQueues verifies that the webhook of pods exists while a queue limits the size of its pods, that its
// condition names exactly these queues, that it calls PodPath of the same Service as the webhook of jobs, and that the
// configuration is written only if it changes. If the hook cannot read the queues, it changes nothing. A missing
// configuration is no error.
func TestPodHookFollowsQueues(t *testing.T) {
	path := Path
	c := &cluster{config: &admissionregistration.ValidatingWebhookConfiguration{Webhooks: []admissionregistration.ValidatingWebhook{{
		Name: "jobs", ClientConfig: admissionregistration.WebhookClientConfig{Service: &admissionregistration.ServiceReference{Path: &path}}}}}}
	h := &podHook{queues: c, direct: c}
	named := func(name, profile string) scheduling.Queue {
		return scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{ResourceShapeProfile: profile}}
	}
	for _, step := range []struct {
		what    string
		queues  []scheduling.Queue
		broken  error
		service string // the Service of the webhook of jobs
		hook    string // the suffix of its condition; empty if there is no hook
		patches int
	}{
		{"no queue bounds pods", []scheduling.Queue{named("a", "")}, nil, "one", "", 0},
		{"one does", []scheduling.Queue{named("a", ""), named("b", "small")}, nil, "one", "in ['b']", 1},
		{"nothing changes", []scheduling.Queue{named("b", "small")}, nil, "one", "in ['b']", 1},
		{"queues cannot be read", nil, errors.New("forbidden"), "one", "in ['b']", 1},
		{"another one does", []scheduling.Queue{named("b", "small"), named("a", "large")}, nil, "one", "in ['a','b']", 2},
		{"the Service changes", []scheduling.Queue{named("b", "small"), named("a", "large")}, nil, "two", "in ['a','b']", 3},
		{"none does any more", nil, nil, "two", "", 4},
	} {
		c.queues, c.broken = step.queues, step.broken
		c.config.Webhooks[0].ClientConfig.Service.Name = step.service
		if err := h.ensure(t.Context()); (err != nil) != (step.broken != nil) {
			t.Errorf("%s: %v", step.what, err)
		}
		condition, at, service := "", "", ""
		for _, w := range c.config.Webhooks {
			if w.Name == podHookName {
				condition, at, service = w.MatchConditions[0].Expression, *w.ClientConfig.Service.Path, w.ClientConfig.Service.Name
			}
		}
		if !strings.HasSuffix(condition, step.hook) || (condition == "") != (step.hook == "") || c.patches != step.patches {
			t.Errorf("%s: the condition is %q after %d patches", step.what, condition, c.patches)
		}
		if condition != "" && (at != PodPath || service != step.service) {
			t.Errorf("%s: it is called at %s of the Service %s", step.what, at, service)
		}
		if *c.config.Webhooks[0].ClientConfig.Service.Path != Path {
			t.Errorf("%s: the webhook of jobs is called at %s", step.what, *c.config.Webhooks[0].ClientConfig.Service.Path)
		}
	}
	c.config = nil
	if err := h.ensure(t.Context()); err != nil {
		t.Errorf("without a configuration: %v", err)
	}
}
