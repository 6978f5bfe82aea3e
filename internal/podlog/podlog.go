// Package podlog reads the logs of containers line by line. It emits each line exactly once, even if connections break.
// Start reading at Reader.
package podlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Line is one line of a log.
type Line struct {
	Time time.Time
	// Text is the line without its timestamp and line break.
	Text string
}

// Opener requests a log with the given options, which ask for timestamps. The caller closes the stream.
type Opener func(ctx context.Context, opts *corev1.PodLogOptions) (io.ReadCloser, error)

// OpenerOf returns an Opener for the log of the pod with the given name and UID. The API server identifies logs only by
// the name of the pod, and the pod of a replica's next attempt has the same name. If another pod has the name now, the
// Opener returns a NotFound error, as for a deleted pod.
func OpenerOf(pods corev1client.PodInterface, name string, uid types.UID) Opener {
	return func(ctx context.Context, opts *corev1.PodLogOptions) (io.ReadCloser, error) {
		stream, err := pods.GetLogs(name, opts).Stream(ctx)
		if err != nil {
			return nil, err
		}
		// If the pod exists now, it also existed when the log was opened. OpenerOf uses list instead of get, because
		// some users may list but not get pods.
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
		if err == nil && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.UID == uid }) {
			err = apierrors.NewNotFound(corev1.Resource("pods"), name)
		}
		if err != nil {
			return nil, errors.Join(err, stream.Close())
		}
		return stream, nil
	}
}

// ErrGone means that the pod was deleted before its log had been read completely.
var ErrGone = errors.New("the pod is gone")

// Position is the point up to which a log has been read. The zero value is the start of the log.
type Position struct {
	// Time is the time of the last line that was read. Seen is the number of lines with this time that were read. The
	// next request returns these lines again.
	Time time.Time
	Seen int
}

// Pass moves the position past a line with the given time.
func (p *Position) Pass(at time.Time) {
	if p.Seen == 0 || !at.Equal(p.Time) {
		*p = Position{Time: at}
	}
	p.Seen++
}

// Reader reads the log of one container. It must not be used concurrently.
type Reader struct {
	Open Opener
	// Options are the options of the requests. Requests that continue from a Position ignore SinceTime, SinceSeconds
	// and TailLines. The method Follow sets Options.Follow.
	Options corev1.PodLogOptions
	// Position is where the next request continues. The Reader updates Position before it emits a line.
	Position Position
	// Emit is called with each line.
	Emit func(Line)
	// Retrying, if it is not nil, is called with the last error after the API server has answered several requests of
	// Follow with an error, for example because the node does not respond. It is called again only after a request has
	// succeeded.
	Retrying func(error)

	failed int // error answers since the last request that succeeded
}

// Once makes one request and emits the lines that have not been emitted yet. Unless Options.Follow is set, it reads up
// to the current end of the log.
func (r *Reader) Once(ctx context.Context) error {
	opts := r.Options
	opts.Timestamps = true
	if r.Position.Seen > 0 {
		// The API accepts only whole seconds, so it returns some lines again. copy skips them.
		since := metav1.NewTime(r.Position.Time.Truncate(time.Second))
		opts.SinceTime, opts.SinceSeconds, opts.TailLines = &since, nil, nil
	}
	stream, err := r.Open(ctx, &opts)
	if err != nil {
		return err
	}
	defer stream.Close()
	return r.copy(stream)
}

// copy emits the lines that have not been emitted yet.
func (r *Reader) copy(stream io.Reader) error {
	from, skip := r.Position, r.Position.Seen
	lines := bufio.NewReader(stream)
	for {
		text, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			// An incomplete line is dropped: the next request returns it in full.
			return fmt.Errorf("reading the log: %w", err)
		}
		if text != "" {
			l := parse(strings.TrimSuffix(text, "\n"), r.Position.Time)
			switch {
			case from.Seen > 0 && l.Time.Before(from.Time):
			case l.Time.Equal(from.Time) && skip > 0:
				skip--
			default:
				r.Position.Pass(l.Time)
				r.Emit(l)
			}
		}
		if err != nil {
			return nil
		}
	}
}

// parse splits a line into timestamp and text. A line without a timestamp gets the timestamp of the previous line.
func parse(s string, last time.Time) Line {
	stamp, text, _ := strings.Cut(s, " ")
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return Line{last, s}
	}
	return Line{t, text}
}

// Delays between attempts to continue a log.
const (
	firstDelay = 250 * time.Millisecond
	maxDelay   = 3 * time.Second
	// lastTries is the number of failed requests after which Follow gives up the log of a terminated container.
	lastTries = 3
	// silentRetries is the number of error answers that Follow does not report to Retrying, because most interruptions
	// are short.
	silentRetries = 2
)

// Follow reads the log until the container has terminated and the log has been read completely; it then returns nil.
// The caller closes ended when the container has terminated. If the pod is deleted first, Follow returns ErrGone or, if
// the last request had read the log to its end, nil. It returns the error of ctx if ctx ends, and the error of a
// request if the user may not read the log or if the log of the terminated container cannot be read.
func (r *Reader) Follow(ctx context.Context, ended <-chan struct{}) error {
	r.Options.Follow = true
	delay, tries, whole := firstDelay, 0, false
	for {
		over := closed(ended)
		before := r.Position
		err := r.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err) && !whole:
			return ErrGone
		case apierrors.IsForbidden(err):
			return err // a forbidden request stays forbidden, so do not retry
		case apierrors.IsNotFound(err), over && err == nil:
			return nil
		case over:
			if tries++; tries == lastTries {
				return err
			}
		}
		whole = err == nil
		r.count(err)
		if r.Position != before {
			delay = firstDelay
		}
		// A log that ends before ended is closed may be incomplete. Follow reads it once more after ended is closed.
		wait := ended
		if over {
			wait = nil
		}
		if err := pause(ctx, wait, delay); err != nil {
			return err
		}
		delay = min(2*delay, maxDelay)
	}
}

// pause waits for a delay or until ended is closed. It returns the error of ctx if ctx ends first.
func pause(ctx context.Context, ended <-chan struct{}, delay time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
	case <-time.After(delay):
	}
	return nil
}

// count counts consecutive error answers of the API server. When there are more than silentRetries of them, it calls
// Retrying once.
func (r *Reader) count(err error) {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		r.failed = 0
	case errors.As(err, &answer):
		if r.failed++; r.failed == silentRetries+1 && r.Retrying != nil {
			r.Retrying(err)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
