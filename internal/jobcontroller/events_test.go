package jobcontroller

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// TestRecorderWritesEachEventOnce verifies that an event is sent again, with its annotation, if the API server does not
// answer, and that it is not sent again if the API server refuses it.
func TestRecorderWritesEachEventOnce(t *testing.T) {
	var requests atomic.Int32
	got, refused := make(chan eventsv1.Event, 10), make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e eventsv1.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		switch n := requests.Add(1); {
		case n == 1:
			panic(http.ErrAbortHandler) // the connection breaks
		case e.Reason == string(batch.EventJobPaused):
			w.WriteHeader(http.StatusForbidden)
			refused <- struct{}{}
		default:
			got <- e
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(&e)
		}
	}))
	defer server.Close()
	client, err := eventsclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := batch.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &recorder{api: client, scheme: scheme, logger: klog.Background(), instance: "test",
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[*eventsv1.Event](time.Millisecond, time.Millisecond))}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Start(ctx) }()

	job := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mnist", UID: "1", ResourceVersion: "7"}}
	r.Record(job, engine.Event{Type: "Normal", Reason: batch.EventReplicaRestarted, Message: "Restarting.",
		Ends: []engine.ReplicaEnd{{Replica: "mnist-worker-0", Restart: 1}}})
	first := <-got
	r.Record(job, engine.Event{Type: "Normal", Reason: batch.EventJobPaused, Message: "refused"})
	r.Record(job, engine.Event{Type: "Warning", Reason: batch.EventNodeLost, Message: "Deleting by force."})
	second := <-got
	<-refused // events are written concurrently, so the refusal may follow the second event
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the recorder ended: %v", err)
	}
	if n := requests.Load(); n != 4 {
		t.Errorf("%d requests, want 4: one without an answer, its repetition, one refused, one more", n)
	}
	want := map[string]string{batch.AnnotationReplicaEnds: `[{"replica":"mnist-worker-0","restart":1}]`}
	if diff := cmp.Diff(want, first.Annotations); diff != "" {
		t.Error(diff)
	}
	if first.Regarding.Kind != "GenericJob" || first.Regarding.UID != "1" || first.Note != "Restarting." || first.ReportingController != eventReporter {
		t.Errorf("event: %+v", first)
	}
	if second.Annotations != nil || second.Reason != string(batch.EventNodeLost) || second.Type != "Warning" {
		t.Errorf("event: %+v", second)
	}
}

func TestRecorderDropsEventsWhileTooManyWait(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := batch.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &recorder{scheme: scheme, logger: klog.Background(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[*eventsv1.Event]())}
	defer r.queue.ShutDown()
	job := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mnist"}}
	for range maxQueuedEvents + 1 {
		r.Record(job, engine.Event{Type: "Normal", Reason: batch.EventJobPaused})
	}
	if n := r.queue.Len(); n != maxQueuedEvents {
		t.Errorf("%d events wait, want %d", n, maxQueuedEvents)
	}
}
