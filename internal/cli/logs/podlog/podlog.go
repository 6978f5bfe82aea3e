// Package podlog reads the logs of containers line by line, each line exactly once, through broken connections.
package podlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Line is one line of a log.
type Line struct {
	Time time.Time
	// Text is without timestamp and without the line's end.
	Text string
}

// Opener requests a log. The options ask for timestamps.
type Opener func(ctx context.Context, opts *corev1.PodLogOptions) (io.ReadCloser, error)

// ErrGone says that the pod has gone before its log was read to the end.
var ErrGone = errors.New("the pod is gone")

// Reader reads the log of one container.
type Reader struct {
	Open Opener
	// Options of the first request; later ones go on from the last line.
	Options corev1.PodLogOptions
	// Emit takes each line.
	Emit func(Line)

	last time.Time
	// seen counts the lines with the timestamp last: further requests give them again.
	seen int
	// read tells that there was any line.
	read bool
}

// Once reads the log as it is now.
func (r *Reader) Once(ctx context.Context) error {
	opts := r.Options
	opts.Timestamps = true
	if r.read {
		// The API takes whole seconds only, so lines come again; copy leaves them out.
		since := metav1.NewTime(r.last.Truncate(time.Second))
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
	from, skip := r.last, r.seen
	lines := bufio.NewReader(stream)
	for {
		text, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			// What came of a line that broke off comes again in full.
			return fmt.Errorf("reading the log: %w", err)
		}
		if text != "" {
			l := parse(strings.TrimSuffix(text, "\n"), r.last)
			switch {
			case r.read && l.Time.Before(from):
			case r.read && l.Time.Equal(from) && skip > 0:
				skip--
			default:
				r.take(l)
			}
		}
		if err != nil {
			return nil
		}
	}
}

func (r *Reader) take(l Line) {
	if !r.read || !l.Time.Equal(r.last) {
		r.last, r.seen = l.Time, 0
	}
	r.read = true
	r.seen++
	r.Emit(l)
}

// parse splits a line into timestamp and text. One without a timestamp gets that of the line before.
func parse(s string, last time.Time) Line {
	stamp, text, _ := strings.Cut(s, " ")
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return Line{last, s}
	}
	return Line{t, text}
}

// Delays between attempts to go on with a log.
const (
	firstDelay = 250 * time.Millisecond
	maxDelay   = 3 * time.Second
	// lastTries is how often the log of a container that has ended is asked for in vain.
	lastTries = 3
)

// Follow reads the log until the container has ended, which closes ended, and everything is read. It returns nil then, ErrGone where
// the pod went before, ctx's error where that came first, and otherwise why the log of an ended container cannot be read.
func (r *Reader) Follow(ctx context.Context, ended <-chan struct{}) error {
	r.Options.Follow = true
	delay, tries := firstDelay, 0
	for {
		over := closed(ended)
		before := r.seen
		at := r.last
		err := r.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err):
			return ErrGone
		case over && err == nil:
			return nil
		case over:
			if tries++; tries == lastTries {
				return err
			}
		}
		if r.seen != before || !r.last.Equal(at) {
			delay = firstDelay
		}
		// A log that ended before its container was seen to end is read once more then.
		wait := ended
		if over {
			wait = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		case <-time.After(delay):
		}
		delay = min(2*delay, maxDelay)
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
