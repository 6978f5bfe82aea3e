package plugin

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// TestObjectThatWasCreatedAgainIsGoneFirst verifies that an update to an object with another UID is passed on as the
// end of the old object and the arrival of the new one.
func TestObjectThatWasCreatedAgainIsGoneFirst(t *testing.T) {
	pod := func(uid types.UID, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid, ResourceVersion: version}}
	}
	var got []string
	h := handlers(func(p *corev1.Pod) { got = append(got, "seen "+string(p.UID)+p.ResourceVersion) },
		func(p *corev1.Pod) { got = append(got, "gone "+string(p.UID)+p.ResourceVersion) })
	h.OnAdd(pod("a", "1"), true)
	h.OnUpdate(pod("a", "1"), pod("a", "2"))
	h.OnUpdate(pod("a", "2"), pod("b", "3"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: pod("b", "4")})
	if want := []string{"seen a1", "seen a2", "gone a2", "seen b3", "gone b4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
