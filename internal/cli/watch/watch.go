// Package watch keeps up with objects of a cluster by list and watch, through expired versions and through outages of the
// API server, for as long as its caller wants.
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

// Source is what is watched: the two calls of a client, narrowed down to a namespace and a selector.
type Source struct {
	List  func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error)
}

// Type tells the kinds of Change apart.
type Type int

const (
	// Listed: Objects are all that there are; what was known before and is not among them is gone.
	Listed Type = iota
	// Set: Objects holds one that is new or has changed.
	Set
	// Gone: Objects holds one that was deleted.
	Gone
	// Lost: the API server does not answer, for the reason Err. It is being tried again.
	Lost
	// Back: the API server answers again.
	Back
)

// Change is news of what is watched.
type Change struct {
	Type    Type
	Objects []runtime.Object
	Err     error
}

// Delays between attempts to reach an API server that does not answer.
const (
	firstDelay = 200 * time.Millisecond
	maxDelay   = 3 * time.Second
)

// watcher is one run of Run.
type watcher struct {
	src  Source
	emit func(Change)
	// version is the one to watch from; empty asks for a list first.
	version string
	// known is true once a list has succeeded, down after a failure that was told.
	known, down bool
}

// Run hands every change to emit, first a list of what there is, until ctx is done, and returns ctx's error then. Any
// other error it returns is the API server's refusal of the very first list: later ones it takes for an outage, since an
// API server that starts up refuses much that it grants a moment later.
func Run(ctx context.Context, src Source, emit func(Change)) error {
	w := &watcher{src: src, emit: emit}
	delay := firstDelay
	for {
		began := time.Now()
		err := w.once(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !w.known:
			return err
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			w.version = ""
			err = nil
		case err != nil && !w.down:
			w.down = true
			w.emit(Change{Type: Lost, Err: err})
		}
		// A watch that ends by itself is the rule; one that ends at once must not spin.
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

// once lists, where that is due, and watches until the watch ends. An end without an error is normal.
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

// News is a Change, or the end, of one of several sources.
type News[T any] struct {
	// About says which source the news is of.
	About  T
	Change Change
	// Err is the error of Run, after which there is no further news of the source; nil for a change.
	Err error
}

// Send runs a source and sends its changes, and at last the error of Run, until ctx is done.
func Send[T any](ctx context.Context, to chan<- News[T], about T, src Source) {
	send := func(n News[T]) {
		select {
		case to <- n:
		case <-ctx.Done():
		}
	}
	err := Run(ctx, src, func(change Change) { send(News[T]{About: about, Change: change}) })
	send(News[T]{About: about, Err: err})
}
