package queue

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/observed"
)

func TestReadShape(t *testing.T) {
	limits, err := ReadShape("cpu: 4\nmemory: 16Gi\nnvidia.com/gpu: \"1\"\nhugepages-2Mi: 0\n")
	if err != nil || limits.Cpu().String() != "4" || limits.Memory().String() != "16Gi" || len(limits) != 4 {
		t.Errorf("%v, %v", limits, err)
	}
	for text, want := range map[string]string{
		"":                      "names no resource",
		"{}":                    "names no resource",
		"cpu":                   "cannot unmarshal string",
		"cpu: -1":               "cpu is -1: a limit is 0 or more",
		"cpu: lots":             "quantities must match",
		"cpus: 4":               "pods do not request cpus",
		"requests: {cpu: 4}":    "quantities must match",
		"gpu: 1":                "such as nvidia.com/gpu",
		"nvidia.com/a b: 1":     "pods do not request",
		"cpu: 1\ncpu: 2":        "already",
		"cpu: 1\n memory: 2Gi:": "yaml",
	} {
		if limits, err := ReadShape(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v; want an error with %q", text, limits, err, want)
		}
	}
}

// TestRequestsAreThoseOfTheScheduler verifies that the requests of a pod equal the requests that the API server and the
// scheduler compute, and that the pod is not changed.
func TestRequestsAreThoseOfTheScheduler(t *testing.T) {
	tests := map[string]struct{ spec, want string }{
		"nothing":                     {`containers: [{name: a}]`, `{}`},
		"containers run at once":      {`containers: [{resources: {requests: {cpu: 1}}}, {resources: {requests: {cpu: 500m}}}]`, `cpu: 1500m`},
		"a limit alone is requested":  {`containers: [{resources: {limits: {cpu: 2, nvidia.com/gpu: 1}, requests: {cpu: 1}}}]`, `{cpu: 1, nvidia.com/gpu: 1}`},
		"an init container runs once": {`{initContainers: [{resources: {limits: {cpu: 3}}}, {resources: {requests: {cpu: 2}}}], containers: [{resources: {requests: {cpu: 1}}}]}`, `cpu: 3`},
		"a sidecar runs on": {`{initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 2}}}, {resources: {requests: {cpu: 2}}}],
			containers: [{resources: {requests: {cpu: 1}}}]}`, `cpu: 4`},
		"overhead":                     {`{overhead: {cpu: 250m}, containers: [{resources: {requests: {cpu: 1}}}]}`, `cpu: 1250m`},
		"the pod as a whole":           {`{resources: {requests: {cpu: 4}}, containers: [{resources: {requests: {cpu: 1}}}]}`, `cpu: 4`},
		"the limit of a pod":           {`{resources: {limits: {cpu: 4}}, containers: [{name: a}]}`, `cpu: 4`},
		"the requests of containers":   {`{resources: {limits: {cpu: 4}}, containers: [{resources: {requests: {cpu: 1}}}]}`, `cpu: 1`},
		"overhead and a pod's request": {`{overhead: {cpu: 1}, resources: {requests: {cpu: 4}}, containers: [{name: a}]}`, `cpu: 5`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var spec corev1.PodSpec
			var want corev1.ResourceList
			for text, into := range map[string]any{test.spec: &spec, test.want: &want} {
				if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			before := spec.DeepCopy()
			if got := observed.Requests(&spec); !apiequality.Semantic.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if !apiequality.Semantic.DeepEqual(&spec, before) {
				t.Error("the pod was changed")
			}
		})
	}
}

func TestRefusalNamesTheExcess(t *testing.T) {
	limits, err := ReadShape("{cpu: 4, memory: 8Gi, nvidia.com/gpu: 0}")
	if err != nil {
		t.Fatal(err)
	}
	shape := &Shape{Queue: "research", Profile: "small", Requests: limits}
	for text, want := range map[string]string{
		`{}`:                     "",
		`{cpu: 4, memory: 8Gi}`:  "",
		`{cpu: 4001m}`:           "a pod is too large for queue research, whose resourceShapeProfile is small: 4001m cpu requested, 4 allowed: request less, or use another queue",
		`{ephemeral-storage: 1}`: "",
		`{memory: 16Gi, nvidia.com/gpu: 1}`: "a pod is too large for queue research, whose resourceShapeProfile is small: 16Gi memory requested, 8Gi allowed; " +
			"1 nvidia.com/gpu requested, 0 allowed: request less, or use another queue",
	} {
		var c corev1.Container
		if err := yaml.UnmarshalStrict([]byte("resources: {requests: "+text+"}"), &c); err != nil {
			t.Fatal(err)
		}
		if got := shape.Refusal(&corev1.PodSpec{Containers: []corev1.Container{c}}); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := (*Shape)(nil).Refusal(&corev1.PodSpec{}); got != "" {
		t.Errorf("no profile: %s", got)
	}
	if got := (&Shape{Queue: "q", Problem: "it is not there"}).Refusal(&corev1.PodSpec{}); !strings.Contains(got, "it is not there, or use another queue") {
		t.Errorf("a problem: %s", got)
	}
}
