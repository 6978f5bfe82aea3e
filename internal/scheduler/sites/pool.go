package sites

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Pool is the set of nodes that a queue may use. It is immutable. A nil pool contains all nodes.
type Pool struct {
	queue        string
	nodeSelector *metav1.LabelSelector
	// selector is nil if the queue may use all nodes.
	selector labels.Selector
}

// NewPool returns the set of nodes that a queue may use. Without a selector, it contains all nodes.
func NewPool(queue string, nodeSelector *metav1.LabelSelector) *Pool {
	pool := &Pool{queue: queue, nodeSelector: nodeSelector}
	if nodeSelector != nil {
		pool.selector = SelectorOf(nodeSelector)
	}
	return pool
}

// SelectorOf returns the selector of a queue. The API server does not validate selectors completely. If the selector is
// invalid, the result selects nothing.
func SelectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// Queue returns the name of the queue; empty for the nil pool.
func (p *Pool) Queue() string {
	if p == nil {
		return ""
	}
	return p.queue
}

// Allows reports whether a node is in the pool.
func (p *Pool) Allows(n *corev1.Node) bool {
	return p == nil || p.selector == nil || p.selector.Matches(labels.Set(n.Labels))
}
