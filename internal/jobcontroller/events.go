package jobcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

const (
	// eventReporter is the reporting controller of events.
	eventReporter = "t9k-operator"
	// eventsAtOnce is the number of events that are written concurrently. It is low, because events only describe
	// earlier actions and must not burden a busy API server.
	eventsAtOnce = 2
	// eventTries is the number of attempts to write an event to an API server that does not answer.
	eventTries = 12
	// maxQueuedEvents is the largest number of events that wait to be written. It bounds the operator's memory while
	// the API server is slow; further events are lost.
	maxQueuedEvents = 10_000
)

// Recorder records the events of jobs.
type Recorder interface {
	// Record records an event of a job. It does not wait.
	Record(obj client.Object, e engine.Event)
}

// recorder writes events of the API group events.k8s.io with annotations, which client-go's recorder for that group
// cannot do. It writes a few events at a time in the background. It never updates an existing event, so the operator
// needs no right to change events.
type recorder struct {
	api      eventsclient.EventsV1Interface
	scheme   *runtime.Scheme
	logger   klog.Logger
	instance string
	queue    workqueue.TypedRateLimitingInterface[*eventsv1.Event]
}

// newRecorder returns a recorder that the manager runs.
func newRecorder(ctx context.Context, mgr ctrl.Manager) (*recorder, error) {
	api, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of events: %w", err)
	}
	hostname, _ := os.Hostname() // the name only distinguishes operators
	r := &recorder{
		api: api, scheme: mgr.GetScheme(), logger: klog.FromContext(ctx), instance: eventReporter + "-" + hostname,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[*eventsv1.Event](time.Second, 10*time.Second)),
	}
	if err := mgr.Add(r); err != nil {
		return nil, fmt.Errorf("adding the recorder of events: %w", err)
	}
	return r, nil
}

// Record queues an event to be written, or discards it if too many events wait. If the event has Ends, an annotation
// holds them as JSON.
func (r *recorder) Record(obj client.Object, e engine.Event) {
	logger := r.logger.WithValues("job", klog.KObj(obj), "reason", e.Reason)
	about, err := reference.GetReference(r.scheme, obj)
	if err != nil {
		logger.Error(err, "Cannot write an event about an unknown kind of object")
		return
	}
	if r.queue.Len() >= maxQueuedEvents {
		logger.Info("Discarded an event, because too many wait to be written")
		return
	}
	now, reason := time.Now(), string(e.Reason)
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: util.GenerateEventName(about.Name, now.UnixNano())},
		EventTime:  metav1.NewMicroTime(now), ReportingController: eventReporter, ReportingInstance: r.instance,
		Type: e.Type, Reason: reason, Action: reason, Note: shorten(e.Message), Regarding: *about,
	}
	if len(e.Ends) > 0 {
		ends, err := json.Marshal(e.Ends)
		if err != nil {
			logger.Error(err, "Cannot encode how replicas ended; the event has no annotation", "annotation", batch.AnnotationReplicaEnds)
		} else {
			event.Annotations = map[string]string{batch.AnnotationReplicaEnds: string(ends)}
		}
	}
	r.queue.Add(event)
}

// Start writes events until ctx ends. Events that still wait are then lost.
func (r *recorder) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.queue.ShutDown)()
	var workers sync.WaitGroup
	for range eventsAtOnce {
		workers.Go(func() {
			for ctx.Err() == nil {
				e, ended := r.queue.Get()
				if ended {
					return
				}
				r.write(ctx, e)
				r.queue.Done(e)
			}
		})
	}
	workers.Wait()
	return nil
}

// write writes an event. If the API server did not answer, it tries again later, up to eventTries times in all. If the
// API server answers with an error, it drops the event.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	_, err := r.api.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	answered := errors.As(err, new(apierrors.APIStatus))
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil && !answered && r.queue.NumRequeues(e) < eventTries-1:
		r.queue.AddRateLimited(e)
		return
	case apierrors.IsAlreadyExists(err): // an earlier attempt succeeded, but its answer was lost
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // nobody could read the event for long
	case err != nil:
		r.logger.Error(err, "Cannot write an event", "regarding", klog.KRef(e.Namespace, e.Regarding.Name), "reason", e.Reason)
	}
	r.queue.Forget(e)
}
