package operator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestOperatorImageIsFoundOrTheErrorHelps(t *testing.T) {
	sidecar, own := corev1.Container{Name: "proxy", Image: "mesh"}, corev1.Container{Name: "operator", Image: "ours"}
	renamed := corev1.Container{Name: "manager", Image: "ours"}
	for name, test := range map[string]struct {
		containers []corev1.Container
		want       string
	}{
		"alone":                      {[]corev1.Container{own}, "ours"},
		"behind an injected sidecar": {[]corev1.Container{sidecar, own}, "ours"},
		"alone, by another name":     {[]corev1.Container{renamed}, "ours"},
		"by another name, not alone": {[]corev1.Container{sidecar, renamed}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := operatorImage(&corev1.Pod{Spec: corev1.PodSpec{Containers: test.containers}})
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("the image is %q (%v), want %q", got, err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "tensorBoards.helperImage") {
				t.Errorf("the error does not explain what to do: %v", err)
			}
		})
	}
}
