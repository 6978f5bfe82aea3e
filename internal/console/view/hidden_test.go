package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHiddenNotes(t *testing.T) {
	got := HiddenNotes([]Hidden{{What: "GenericJobs", Within: "red"}, {What: "nodes"}, {What: "PyTorchTrainingJobs", Within: "red"}, {What: "events", Within: "red"}, {What: "events", Within: "red"}, {What: "pods", Others: true}, {What: "queues"}})
	want := []string{
		"You may not list GenericJobs, PyTorchTrainingJobs and events of all namespaces: only namespace red is shown. t9k ui -n NAMESPACE shows another one.",
		"You may not list nodes and queues.", "You may not list pods of all namespaces: only namespaces in which you may are shown.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
