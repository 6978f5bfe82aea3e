package board

import (
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// TestTextsOfUsersReachNoShell verifies that the containers of a TensorBoard run no shell, and that each path and
// address of its logs ends up in a single argument, in which the kubelet expands nothing.
func TestTextsOfUsersReachNoShell(t *testing.T) {
	const evil = "$(touch evil);id|sh`id`"
	tb := &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "board"}}
	tb.Spec.Image = evil
	tb.Spec.LogDir = &tensorboard.LogDir{
		PVC:  []tensorboard.PVCSource{{Name: "claim", SubPath: []string{"of-claim" + evil}}},
		S3:   &tensorboard.S3Source{SecretRef: tensorboard.SecretRef{Name: "secret"}, URI: []string{"s3://bucket/of-store" + evil}},
		HTTP: &tensorboard.HTTPSource{URL: []string{"https://example.com/of-web" + evil}},
	}
	logs, errs := Convert(&tb.Spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	pod := Deployment(tb, logs, Settings{HelperImage: "helper", HelperCommand: []string{"/t9k-operator"}, Proxy: true}).Spec.Template.Spec
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	if len(containers) != 3 {
		t.Errorf("%d containers, want those of TensorBoard, the proxy and the download", len(containers))
	}
	var arguments []string
	for _, c := range containers {
		arguments = append(arguments, checkNoShell(t, c)...)
	}
	for _, source := range []string{"of-claim", "of-store", "of-web"} {
		found := slices.DeleteFunc(slices.Clone(arguments), func(a string) bool { return !strings.Contains(a, source) })
		if len(found) != 1 || !strings.Contains(found[0], strings.ReplaceAll(evil, "$", "$$")) {
			t.Errorf("the text %s is in the arguments %q", source+evil, found)
		}
	}
}

// checkNoShell verifies that a container runs TensorBoard or our helper, and returns its arguments.
func checkNoShell(t *testing.T, c corev1.Container) []string {
	t.Helper()
	if program := c.Command[0]; len(c.Args) > 0 || program != "tensorboard" && path.Base(program) != "t9k-operator" {
		t.Errorf("container %s runs %q %q", c.Name, c.Command, c.Args)
	}
	return c.Command[1:]
}
