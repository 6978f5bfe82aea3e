package sites

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/scheduler/podspec"
)

func node(name string, l map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}, Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}}
}

// TestSitesFollowLabelsAndTaints verifies which nodes a pod may use. Nodes with a temporary taint count.
func TestSitesFollowLabelsAndTaints(t *testing.T) {
	lasting := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule}
	passing := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	preferred := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectPreferNoSchedule}
	nodes := []*corev1.Node{node("a", map[string]string{"disk": "ssd", "zone": "x"}), node("b", map[string]string{"disk": "hdd", "zone": "x"}),
		node("c", map[string]string{"disk": "ssd", "zone": "y"}, lasting), node("d", map[string]string{"disk": "ssd", "zone": "y"}, passing, preferred)}
	in := func(domain string, count int) core.Site {
		return core.Site{Room: core.Resources{"cpu": 4000}, Domain: domain, Count: count}
	}
	const tainted = "1 node that its node selector and affinity allow has the taint mine:NoSchedule, which its pods do not tolerate: let them tolerate it"
	for name, test := range map[string]struct {
		selector *metav1.LabelSelector // the selector of the queue
		spec     corev1.PodSpec
		want     []core.Site
		lack     string
	}{
		"all but the tainted node": {want: []core.Site{in("x", 2), in("y", 1)}, lack: tainted},
		"a tolerated taint": {spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "mine", Operator: corev1.TolerationOpExists}}},
			want: []core.Site{in("x", 2), in("y", 2)}},
		"a label": {spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "hdd"}}, want: []core.Site{in("x", 1)}},
		"a label that no node has": {spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "tape"}},
			lack: "no node has the label disk=tape, which the pods select: label a node so, or select another label"},
		"the nodes of a queue": {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "x"}}, want: []core.Site{in("x", 2)}},
		"a queue without nodes": {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "z"}},
			lack: "no node matches the nodeSelector of queue q (zone=z): label a node so, or change the queue"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: test.spec}
			got := New(nodes, "zone").Of(NewPool("q", test.selector), pod, podspec.Constraints(pod))
			if want := core.NewSites(test.want, test.lack); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestInvalidSelectorSelectsNothing verifies that an invalid selector that the API server has accepted selects no node.
func TestInvalidSelectorSelectsNothing(t *testing.T) {
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Is", Values: []string{"x"}}}}
	if NewPool("q", invalid).Allows(node("a", map[string]string{"zone": "x"})) {
		t.Error("an invalid selector selects a node")
	}
}

// TestMissingLabelIsNamed verifies that the message for pods that fit on no node names the first selected label that no
// node has, or says that no node has all selected labels.
func TestMissingLabelIsNamed(t *testing.T) {
	nodes := []*corev1.Node{node("a", map[string]string{"disk": "ssd"}), node("b", map[string]string{"gpu": "yes"})}
	for want, selector := range map[string]map[string]string{
		"no node has the label disk=tape, which the pods select":                       {"disk": "tape", "gpu": "yes"},
		"no node has all of the labels together that the pods select: label a node so": {"disk": "ssd", "gpu": "yes"},
	} {
		if got := missingLabel(NewPool("q", nil), &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: selector}}, nodes); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", labels.FormatLabels(selector), got, want)
		}
	}
}
