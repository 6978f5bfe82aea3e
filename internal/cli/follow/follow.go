// Package follow keeps up with objects of a cluster by list and watch, through expired versions and through outages of the
// API server, for as long as its caller wants.
package follow

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Source is what is followed: the two calls of a client, narrowed down to a namespace and a selector.
type Source struct {
	List  func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
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

// Change is news of what is followed.
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

// follower is one run of Run.
type follower struct {
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
	f := &follower{src: src, emit: emit}
	delay := firstDelay
	for {
		began := time.Now()
		err := f.once(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !f.known:
			return err
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			f.version = ""
			err = nil
		case err != nil && !f.down:
			f.down = true
			f.emit(Change{Type: Lost, Err: err})
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
func (f *follower) once(ctx context.Context) error {
	if f.version == "" {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	w, err := f.src.Watch(ctx, metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true})
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	defer w.Stop()
	f.back()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watching: %w", apierrors.FromObject(event.Object))
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return fmt.Errorf("watching: %w", err)
		}
		f.version = object.GetResourceVersion()
		switch event.Type {
		case watch.Added, watch.Modified:
			f.emit(Change{Type: Set, Objects: []runtime.Object{event.Object}})
		case watch.Deleted:
			f.emit(Change{Type: Gone, Objects: []runtime.Object{event.Object}})
		}
	}
	return nil
}

func (f *follower) list(ctx context.Context) error {
	list, err := f.src.List(ctx, metav1.ListOptions{})
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
	f.version, f.known = version, true
	f.back()
	f.emit(Change{Type: Listed, Objects: objects})
	return nil
}

func (f *follower) back() {
	if f.down {
		f.down = false
		f.emit(Change{Type: Back})
	}
}
