package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/queue"
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batch.AddToScheme, scheduling.AddToScheme, admissionregistration.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// job returns a GenericJob with one role, after change has modified it. change may be nil.
func job(change func(*batch.GenericJob)) *batch.GenericJob {
	j := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Spec: batch.GenericJobSpec{ReplicaSpecs: []batch.ReplicaSpec{{
		Type: "worker", Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}}}}}}}
	if change != nil {
		change(j)
	}
	return j
}

func encoded(t *testing.T, o any) runtime.RawExtension {
	t.Helper()
	if o == nil {
		return runtime.RawExtension{}
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: raw}
}

func request(t *testing.T, op admissionv1.Operation, kind string, updated, old any) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: op, Kind: metav1.GroupVersionKind{Group: batch.GroupVersion.Group, Version: batch.GroupVersion.Version, Kind: kind},
		Name: "j", Namespace: "ns", Object: encoded(t, updated), OldObject: encoded(t, old),
	}}
}

// endless returns a job with more replicas than the operator interprets.
func endless() *batch.PyTorchTrainingJob {
	return &batch.PyTorchTrainingJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Spec: batch.PyTorchTrainingJobSpec{
		TorchrunConfig: &batch.TorchrunConfig{Enabled: new(true)},
		ReplicaSpecs: []batch.PyTorchReplicaSpec{{TrainingReplicaSpec: batch.TrainingReplicaSpec{
			Type: "worker", Replicas: new(int32(math.MaxInt32)), Template: job(nil).Spec.ReplicaSpecs[0].Template}}}}}
}

func TestInvalidJobsAreRefused(t *testing.T) {
	none := func(j *batch.GenericJob) { j.Spec.ReplicaSpecs[0].Replicas = new(int32(0)) }
	more := func(j *batch.GenericJob) { j.Spec.ReplicaSpecs[0].Replicas = new(int32(2)) }
	noted := func(j *batch.GenericJob) { none(j); j.Annotations = map[string]string{"a": "b"} }
	deleting := func(j *batch.GenericJob) { none(j); j.DeletionTimestamp = new(metav1.Now()) }
	for name, test := range map[string]struct {
		op      admissionv1.Operation
		kind    string
		job     any
		old     any
		sub     string
		refused string
		code    int32
	}{
		"a valid job":                {op: admissionv1.Create, job: job(nil)},
		"no replicas":                {op: admissionv1.Create, job: job(none), refused: "at least one replica", code: http.StatusUnprocessableEntity},
		"no replicas, being deleted": {op: admissionv1.Update, job: job(deleting), old: job(none)},
		"its status":                 {op: admissionv1.Update, job: job(none), old: job(none), sub: "status"},
		"a deletion":                 {op: admissionv1.Delete},
		"the size of a live job":     {op: admissionv1.Update, job: job(more), old: job(nil), refused: "replicas", code: http.StatusUnprocessableEntity},
		"metadata of an invalid job": {op: admissionv1.Update, job: job(noted), old: job(none)},
		"a job that becomes invalid": {op: admissionv1.Update, job: job(none), old: job(nil), refused: "replica", code: http.StatusUnprocessableEntity},
		"metadata of an invalid job that cannot be interpreted": {op: admissionv1.Update, kind: "PyTorchTrainingJob", job: endless(), old: endless()},
		"another kind":                {op: admissionv1.Create, kind: "CronJob", job: job(nil), refused: "CronJob", code: http.StatusBadRequest},
		"what is no job":              {op: admissionv1.Create, job: "text", refused: "cannot unmarshal", code: http.StatusBadRequest},
		"a change of what was no job": {op: admissionv1.Update, job: job(nil), old: "text", refused: "cannot unmarshal", code: http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if test.kind == "" {
				test.kind = "GenericJob"
			}
			req := request(t, test.op, test.kind, test.job, test.old)
			req.SubResource = test.sub
			v := &validator{decoder: admission.NewDecoder(testScheme(t))}
			answer := v.Handle(t.Context(), req)
			if answer.Allowed != (test.refused == "") {
				t.Fatalf("the answer is %+v", answer.Result)
			}
			if test.refused != "" && (!strings.Contains(answer.Result.Message, test.refused) || answer.Result.Code != test.code) {
				t.Errorf("the answer is %d %q", answer.Result.Code, answer.Result.Message)
			}
		})
	}
}

func (s shapesOf) OfQueue(context.Context, string) (*queue.Shape, error) { return s.shape, s.err }

func TestJobsAreLimitedByTheProfileOfTheirQueue(t *testing.T) {
	small := &queue.Shape{Queue: "q", Profile: "small", Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	unknown := &queue.Shape{Queue: "q", Profile: "small", Problem: "the ConfigMap has no such key"}
	for name, test := range map[string]struct {
		shapes  shapesOf
		cpu     string
		refused string
		warned  bool
	}{
		"small enough":               {shapes: shapesOf{shape: small}, cpu: "1"},
		"too large":                  {shapes: shapesOf{shape: small}, cpu: "2", refused: "spec.replicaSpecs[0].template.spec"},
		"a profile that is missing":  {shapes: shapesOf{shape: unknown}, cpu: "1", refused: "has no such key"},
		"queues that cannot be read": {shapes: shapesOf{err: errors.New("forbidden")}, cpu: "100", warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(func(j *batch.GenericJob) {
				j.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "q"}}
				j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(test.cpu)}
			})
			v := &validator{decoder: admission.NewDecoder(testScheme(t)), shapes: test.shapes}
			answer := v.Handle(t.Context(), request(t, admissionv1.Create, "GenericJob", j, nil))
			if answer.Allowed != (test.refused == "") || test.refused != "" && !strings.Contains(answer.Result.Message, test.refused) {
				t.Errorf("the answer is %+v", answer.Result)
			}
			if test.warned != (len(answer.Warnings) > 0) {
				t.Errorf("warnings %q", answer.Warnings)
			}
		})
	}
}

func TestDefaultsAreSet(t *testing.T) {
	yes := true
	elastic := &batch.PyTorchTrainingJob{Spec: batch.PyTorchTrainingJobSpec{TorchrunConfig: &batch.TorchrunConfig{Enabled: &yes},
		Elastic: &batch.ElasticConfig{Enabled: &yes, MinReplicas: new(int32(2)), MaxReplicas: new(int32(4))}}}
	for name, test := range map[string]struct {
		op      admissionv1.Operation
		kind    string
		job     any
		refused bool
		patch   string
	}{
		"a size that is left out": {op: admissionv1.Create, kind: "PyTorchTrainingJob", job: elastic, patch: "/spec/elastic/expectedReplicas"},
		"nothing to fill in":      {op: admissionv1.Create, kind: "GenericJob", job: job(nil)},
		"what is no job":          {op: admissionv1.Create, kind: "PyTorchTrainingJob", job: "text"},
		"another kind":            {op: admissionv1.Create, kind: "CronJob", job: job(nil), refused: true},
		"a deletion":              {op: admissionv1.Delete, kind: "PyTorchTrainingJob"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := (&defaulter{decoder: admission.NewDecoder(testScheme(t))}).Handle(t.Context(), request(t, test.op, test.kind, test.job, nil))
			if answer.Allowed == test.refused {
				t.Fatalf("the answer is %+v", answer.Result)
			}
			if test.patch == "" && len(answer.Patches) > 0 || test.patch != "" && (len(answer.Patches) != 1 || answer.Patches[0].Path != test.patch) {
				t.Errorf("patches %+v, want one of %q", answer.Patches, test.patch)
			}
		})
	}
}

func TestRequestersAreRecorded(t *testing.T) {
	by := func(note string) *batch.GenericJob {
		return job(func(j *batch.GenericJob) { j.Annotations = map[string]string{scheduling.AnnotationRequestedBy: note} })
	}
	for name, test := range map[string]struct {
		op       admissionv1.Operation
		sub      string
		job, old any
		refused  bool
		want     string
	}{
		"a new job":               {op: admissionv1.Create, job: job(nil), want: `["ann\"a","g"]`},
		"one that names another":  {op: admissionv1.Create, job: by(`["bob"]`), want: `["ann\"a","g"]`},
		"one that names the same": {op: admissionv1.Create, job: by(`["ann\"a","g"]`)},
		"a note that is changed":  {op: admissionv1.Update, job: by("me"), old: by("ann"), want: "ann"},
		"a note that is kept":     {op: admissionv1.Update, job: by("ann"), old: by("ann")},
		"a status":                {op: admissionv1.Update, sub: "status", job: by("me"), old: by("ann")},
		"what is no object":       {op: admissionv1.Create, job: "text", refused: true},
		"what was no object":      {op: admissionv1.Update, job: job(nil), old: "text", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, test.op, "GenericJob", test.job, test.old)
			req.SubResource, req.UserInfo = test.sub, authenticationv1.UserInfo{Username: `ann"a`, Groups: []string{"g"}}
			answer := requesterAnnotator{}.Handle(t.Context(), req)
			if answer.Allowed == test.refused {
				t.Fatalf("the answer is %+v", answer.Result)
			}
			patches, err := json.Marshal(answer.Patches)
			if err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(test.want)
			if err != nil {
				t.Fatal(err)
			}
			if (len(answer.Patches) > 0) != (test.want != "") || !strings.Contains(string(patches), strings.Trim(string(want), `"`)) {
				t.Errorf("patches %s, want %s", patches, want)
			}
		})
	}
}

// offlineManager returns a manager that is never started, so that it needs no API server.
func offlineManager(t *testing.T) ctrl.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Scheme: testScheme(t), Metrics: metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0", MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(scheduling.GroupVersion.WithKind("Queue"), meta.RESTScopeRoot)
			return mapper, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

func TestWebhookIsAddedToAManager(t *testing.T) {
	for name, test := range map[string]struct {
		opts Options
		want string
	}{
		"all is known":       {Options{Address: ":9443", Namespace: "ns"}, ""},
		"no namespace":       {Options{Address: ":9443"}, "namespace of its certificate is unknown"},
		"no port":            {Options{Address: "host", Namespace: "ns"}, "missing port"},
		"a port beyond all":  {Options{Address: ":70000", Namespace: "ns"}, "no port from 1 to 65535"},
		"a port without end": {Options{Address: ":https", Namespace: "ns"}, "no port from 1 to 65535"},
	} {
		t.Run(name, func(t *testing.T) {
			var checks []string
			test.opts.AddReadyzCheck = func(name string, _ healthz.Checker) { checks = append(checks, name) }
			err := Add(offlineManager(t), test.opts)
			if err == nil && !slices.Equal(checks, []string{"webhook"}) {
				t.Errorf("the readiness checks are %v", checks)
			}
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	if err := AddPodHook(t.Context(), offlineManager(t)); err != nil {
		t.Error(err)
	}
}

// TestPodHookRunsUntilTheEnd verifies that the pod hook checks the configuration when it starts and whenever a queue
// changes, until the context ends.
func TestPodHookRunsUntilTheEnd(t *testing.T) {
	config := &admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName},
		Webhooks: []admissionregistration.ValidatingWebhook{{Name: "jobs"}}}
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(config).Build()
	h := &podHook{queues: c, direct: c, due: make(chan struct{})}
	if h.NeedLeaderElection() {
		t.Error("the pod hook runs only in the leader")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Start(ctx) }()
	if err := c.Create(ctx, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{ResourceShapeProfile: "small"}}); err != nil {
		t.Fatal(err)
	}
	h.due <- struct{}{} // received after the first check
	h.due <- struct{}{} // received after the second check
	if err := c.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	if len(config.Webhooks) != 2 {
		t.Errorf("webhooks %+v", config.Webhooks)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
