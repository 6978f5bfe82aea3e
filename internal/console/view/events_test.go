package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestEventsOfAJobAndItsPods verifies the order of the rows, that the warnings of a gang whose pods all wait for the
// same reason share one row, and that the number of rows is limited.
func TestEventsOfAJobAndItsPods(t *testing.T) {
	about := func(kind, name, uid string, after time.Duration, reason, message string) *corev1.Event {
		return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name, UID: types.UID(uid)}, LastTimestamp: metav1.NewTime(noon.Add(after)), Reason: reason, Message: message, Count: 2, Type: "Warning"}
	}
	in := &JobInput{Events: []*corev1.Event{about("GenericJob", "j", "j", time.Second, "A", "x"), about("GenericJob", "j", "j", time.Minute, "B", "y")}}
	for i := range 3 {
		name, uid := fmt.Sprintf("j-w-%d", i), fmt.Sprintf("%d%d%d", i, i, i)
		in.Warnings = append(in.Warnings, about("Pod", name, uid, time.Duration(2+i)*time.Second, "BackOff", "back-off in pod "+name+"_ns("+uid+")"))
	}
	in.Warnings = append(in.Warnings, about("Pod", "j-w-0", "new", 10*time.Second, "BackOff", "back-off in pod j-w-0_ns(new)"), about("Pod", "j-w-0", "new", time.Hour, "FailedMount", "no volume"))
	p := &JobPage{}
	in.fillEvents(p)
	var got []string
	for _, r := range p.Events {
		got = append(got, fmt.Sprintf("%s %s %s+%d ×%d %s", r.At.Sub(noon), r.Reason, r.Pod, r.Others, r.Count, r.Message))
	}
	want := []string{"1h0m0s FailedMount j-w-0+0 ×2 no volume", "1m0s B +0 ×2 y", "10s BackOff j-w-0+2 ×8 back-off in pod j-w-0_ns(new)", "1s A +0 ×2 x"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}

	for i := range shownEvents {
		in.Events = append(in.Events, about("GenericJob", "j", "j", 2*time.Hour, "C", fmt.Sprint(i)))
	}
	p = &JobPage{}
	if in.fillEvents(p); len(p.Events) != shownEvents || p.MoreEvents != len(want) || p.Events[0].Message != fmt.Sprint(shownEvents-1) {
		t.Errorf("%d rows and %d more, the first one %v", len(p.Events), p.MoreEvents, p.Events[0])
	}
}
