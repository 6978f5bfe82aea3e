package jobcontroller

import (
	"context"
	"fmt"

	eventsv1 "k8s.io/api/events/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

// eventsAtOnce is the number of events that are written at once. They tell people what has been done already, so an API server
// that is busy gets them slowly.
const eventsAtOnce = 2

// sink writes events, a few at a time. The manager's own recorder sends all that there are at once.
type sink struct {
	events.EventSinkImpl
	slots chan struct{}
}

// Create writes an event.
func (s *sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.slots }()
	return s.EventSinkImpl.Create(ctx, event)
}

// Patch would write how often an event has repeated itself. Nobody acts on that, so the operator needs no right to it.
func (s *sink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return event, nil
}

// newRecorder makes what events are told to. It works until ctx ends.
func newRecorder(ctx context.Context, mgr ctrl.Manager) (events.EventRecorder, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of events: %w", err)
	}
	broadcaster := events.NewBroadcaster(&sink{events.EventSinkImpl{Interface: client}, make(chan struct{}, eventsAtOnce)})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("recording events: %w", err)
	}
	return broadcaster.NewRecorder(mgr.GetScheme(), "t9k-operator"), nil
}
