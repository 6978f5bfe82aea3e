// Package podlog reads the logs of containers line by line. It returns each line exactly once, even if connections
// break. Start reading at Reader.
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

// Opener requests a log. The options ask for timestamps.
type Opener func(ctx context.Context, opts *corev1.PodLogOptions) (io.ReadCloser, error)

// OpenerOf returns an Opener for the log of a pod. Logs are requested by pod name, and the pod of the replica's next
// attempt has the same name. If the log belongs to another pod, the Opener returns the error for a deleted pod.
func OpenerOf(pods corev1client.PodInterface, name string, uid types.UID) Opener {
	return func(ctx context.Context, opts *corev1.PodLogOptions) (io.ReadCloser, error) {
		stream, err := pods.GetLogs(name, opts).Stream(ctx)
		if err != nil {
			return nil, err
		}
		// If the pod exists now, it also existed when its log was opened. The code lists instead of getting the pod,
		// because some users may list but not get pods.
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

// ErrGone means that the pod was deleted before its log was read completely.
var ErrGone = errors.New("the pod is gone")

// Position is the position up to which a log has been read. The zero value is the start of the log.
type Position struct {
	// Time is the time of the last line. Seen is the number of lines with this time that were read, because requests
	// return them again.
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

// Reader reads the log of one container.
type Reader struct {
	Open Opener
	// Options are the options of the first request, unless it continues from a position. Later requests continue from
	// the last line.
	Options corev1.PodLogOptions
	// Position is where the next request continues.
	Position Position
	// Emit receives each line.
	Emit func(Line)
	// Retrying receives the answer of the API server if it has answered several requests of Follow with an error, for
	// example because the node does not respond. It is called once until a request succeeds; nil if nobody needs it.
	Retrying func(error)

	failed int // error answers since the last request that succeeded
}

// Once reads the log up to its current end.
func (r *Reader) Once(ctx context.Context) error {
	opts := r.Options
	opts.Timestamps = true
	if r.Position.Seen > 0 {
		// The API accepts whole seconds only, so it returns lines again; copy skips them.
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
	// lastTries is the largest number of failed requests for the log of a terminated container.
	lastTries = 3
	// silentRetries is the number of error answers before Retrying is called, because most interruptions are short.
	silentRetries = 2
)

// Follow reads the log until the container has terminated, which the caller signals by closing ended, and the log has
// been read completely. It returns ErrGone if the pod is deleted first, unless the log had just ended without an error,
// in which case it is complete. It returns ctx's error if ctx ends before, and a request's error if the user may not
// read the log or if the log of the terminated container cannot be read.
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
		// If a log ends before the caller signals that the container has terminated, it is read once more after the
		// signal.
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

// pause waits for a delay, or until ended is closed. It returns ctx's error if ctx ends before.
func pause(ctx context.Context, ended <-chan struct{}, delay time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
	case <-time.After(delay):
	}
	return nil
}

// count counts a request with its error, and calls Retrying if too many requests have failed.
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
