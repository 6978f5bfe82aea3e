package podlog

import (
	"context"
	"time"
)

// Merge emits the values of several channels in the order of their times, until all channels are closed or ctx ends. It
// preserves the order within each channel. Merge waits for the next value of each channel, but not longer than patience
// while it has values of other channels. If a channel is late, Merge stops receiving from it.
func Merge[T any](ctx context.Context, sources []<-chan T, at func(T) time.Time, patience time.Duration, emit func(T)) {
	m := &merger[T]{heads: make([]*T, len(sources)), sources: append([]<-chan T(nil), sources...)}
	for m.fill(ctx, patience) {
		first := -1
		for i, h := range m.heads {
			if h != nil && (first < 0 || at(*h).Before(at(*m.heads[first]))) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		emit(*m.heads[first])
		m.heads[first] = nil
	}
}

// merger holds the next value of each source. A source that is closed or late is set to nil.
type merger[T any] struct {
	sources []<-chan T
	heads   []*T
}

// fill receives the next value of each source whose head is nil. It returns false if ctx has ended.
func (m *merger[T]) fill(ctx context.Context, patience time.Duration) bool {
	var late <-chan time.Time
	for i, source := range m.sources {
		if source == nil || m.heads[i] != nil {
			continue
		}
		select {
		case v, open := <-source:
			m.take(i, v, open)
			continue
		default:
		}
		if late == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case v, open := <-source:
			m.take(i, v, open)
		case <-late:
			m.sources[i] = nil
			done := make(chan time.Time)
			close(done)
			late = done // all other sources without a value are late too
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (m *merger[T]) take(i int, v T, open bool) {
	if !open {
		m.sources[i] = nil
		return
	}
	m.heads[i] = &v
}
