package upgrade

import (
	"fmt"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/watch"
)

// bindDefault binds the pods of the default scheduler, in the namespaces of the test and of the chart, to the only
// node until the test ends. It replaces the scheduler of the embedded cluster, which would also schedule the pods that
// name the t9k-scheduler. In this test, the t9k-scheduler that the chart installs must schedule them.
func bindDefault(s *namespace.Test) {
	s.Helper()
	nodes := &corev1.NodeList{}
	s.Await("there is a node with its Lease", func() error {
		if err := s.Client.List(s.Context(), nodes); err != nil || len(nodes.Items) != 1 {
			return fmt.Errorf("%d nodes: %w", len(nodes.Items), err)
		}
		return s.Beside(corev1.NamespaceNodeLease).Get(nodes.Items[0].Name, &coordination.Lease{})
	})
	for _, ns := range []string{s.Namespace, systemNamespace} {
		s.Beside(ns).Watch(&corev1.PodList{}, func(objects []client.Object) bool {
			for _, p := range watch.Typed[*corev1.Pod](objects) {
				if p.Spec.NodeName == "" && p.Spec.SchedulerName == corev1.DefaultSchedulerName {
					// A conflict means that the pod is already bound.
					_ = s.Core.CoreV1().Pods(ns).Bind(s.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
						Target: corev1.ObjectReference{Kind: "Node", Name: nodes.Items[0].Name}}, metav1.CreateOptions{})
				}
			}
			return false
		})
	}
}
