// Package watch observes objects of a cluster by list and watch. It continues after expired resource versions and
// outages of the API server until its caller stops it. Start reading at Run.
package watch

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// Source is the pair of client calls that list and watch the objects, restricted to a namespace and a selector.
type Source struct {
	List  func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error)
	// Answered is true if the API server has answered before, so that a missing answer is treated as an outage.
	Answered bool
}

// Type is the type of a Change.
type Type int

const (
	// Listed means that Objects are all existing objects. Objects that were known before and are not among them are
	// deleted.
	Listed Type = iota
	// Set means that Objects holds one new or changed object.
	Set
	// Gone means that Objects holds one deleted object.
	Gone
	// Lost means that the API server does not answer, for the reason Err. Run tries again.
	Lost
	// Back means that the API server answers again.
	Back
)

// Change is a change of the watched objects or of the connection.
type Change struct {
	Type    Type
	Objects []runtime.Object
	// Err is set only for Lost.
	Err error
}

// Delays between attempts to reach an API server that does not answer.
const (
	firstDelay = 200 * time.Millisecond
	maxDelay   = 3 * time.Second
)

// watcher is the state of one call of Run.
type watcher struct {
	src  Source
	emit func(Change)
	// version is the resource version to watch from; empty means to list first.
	version string
	// known is true once a list has succeeded. down is true from a failure that was reported until the API server
	// answers again.
	known, down bool
}

// Run passes every change to emit until ctx is done, beginning with a list of the existing objects, and then returns
// ctx's error. If the first list fails, Run returns the error, unless the failure is an outage of a server that has
// answered before. It treats later errors as outages, because a starting API server rejects many requests for a moment.
func Run(ctx context.Context, src Source, emit func(Change)) error {
	w := &watcher{src: src, emit: emit}
	delay := firstDelay
	for {
		began := time.Now()
		err := w.once(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case w.ends(err):
			return err
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			w.version = ""
			err = nil
		case err != nil && !w.down:
			w.down = true
			w.emit(Change{Type: Lost, Err: err})
		}
		// A watch usually ends by itself. The delay prevents a busy loop if watches end immediately.
		if err == nil && time.Since(began) > maxDelay {
			delay = firstDelay
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
		delay = min(2*delay, maxDelay)
		if err == nil {
			delay = firstDelay
		}
	}
}

// ends reports whether Run returns an error: the error of the first list, unless it is an outage of a server that has
// answered before.
func (w *watcher) ends(err error) bool {
	return err != nil && !w.known && !w.down && (refused(err) || !w.src.Answered)
}

// refused reports whether the API server answered that this user may not list the resource or that the resource does
// not exist.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

// once lists if necessary, and watches until the watch ends. It returns nil if the watch ends without an error.
func (w *watcher) once(ctx context.Context) error {
	if w.version == "" {
		if err := w.list(ctx); err != nil {
			return err
		}
	}
	stream, err := w.src.Watch(ctx, metav1.ListOptions{ResourceVersion: w.version, AllowWatchBookmarks: true})
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	defer stream.Stop()
	w.back()
	for event := range stream.ResultChan() {
		if event.Type == apiwatch.Error {
			return fmt.Errorf("watching: %w", apierrors.FromObject(event.Object))
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return fmt.Errorf("watching: %w", err)
		}
		w.version = object.GetResourceVersion()
		switch event.Type {
		case apiwatch.Added, apiwatch.Modified:
			w.emit(Change{Type: Set, Objects: []runtime.Object{event.Object}})
		case apiwatch.Deleted:
			w.emit(Change{Type: Gone, Objects: []runtime.Object{event.Object}})
		}
	}
	return nil
}

func (w *watcher) list(ctx context.Context) error {
	list, err := w.src.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	version, err := meta.NewAccessor().ResourceVersion(list)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	w.version, w.known = version, true
	w.back()
	w.emit(Change{Type: Listed, Objects: objects})
	return nil
}

func (w *watcher) back() {
	if w.down {
		w.down = false
		w.emit(Change{Type: Back})
	}
}

// Update is a change from one of several sources, or the end of a source.
type Update[T any] struct {
	// About identifies the source.
	About  T
	Change Change
	// Err is the error of Run, after which the source sends nothing more; nil for a change.
	Err error
}

// Send runs a source and sends its changes until ctx is done or Run returns an error, which it sends last.
func Send[T any](ctx context.Context, to chan<- Update[T], about T, src Source) {
	send := func(n Update[T]) {
		select {
		case to <- n:
		case <-ctx.Done():
		}
	}
	err := Run(ctx, src, func(change Change) { send(Update[T]{About: about, Change: change}) })
	send(Update[T]{About: about, Err: err})
}
