package podlog

import (
	"context"
	"reflect"
	"time"
)

// Merge emits the values of several channels in the order of their times, until all channels are closed or ctx ends. It
// preserves the order within each channel. Before each emission, Merge waits for the next value of each channel. If no
// value arrives for the duration patience, Merge stops receiving from the channels that it still waits for, and leaves
// out their further values.
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

// merger holds the next value of each source in heads; nil if it has not been received yet. A source that is closed or
// that did not send in time is set to nil.
type merger[T any] struct {
	sources []<-chan T
	heads   []*T
}

// fill receives the next value of each source whose head is nil, and gives up sources that send nothing for the
// duration patience. It returns false if ctx ends while it waits.
func (m *merger[T]) fill(ctx context.Context, patience time.Duration) bool {
	var timer *time.Timer
	for {
		pending := m.receive()
		if len(pending) == 0 {
			return true
		}
		if timer == nil {
			timer = time.NewTimer(patience)
			defer timer.Stop()
		}
		cases := []reflect.SelectCase{
			{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}, {Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timer.C)},
		}
		fixed := len(cases)
		for _, i := range pending {
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(m.sources[i])})
		}
		chosen, value, open := reflect.Select(cases)
		switch chosen {
		case 0:
			return false
		case 1:
			for _, i := range m.receive() {
				m.sources[i] = nil
			}
			return true
		}
		var v T
		if open {
			v = value.Interface().(T)
		}
		m.take(pending[chosen-fixed], v, open)
		timer.Reset(patience)
	}
}

// receive takes the values that are ready. It returns the indices of the sources that have none yet.
func (m *merger[T]) receive() (pending []int) {
	for i, source := range m.sources {
		if source == nil || m.heads[i] != nil {
			continue
		}
		select {
		case v, open := <-source:
			m.take(i, v, open)
		default:
			pending = append(pending, i)
		}
	}
	return pending
}

func (m *merger[T]) take(i int, v T, open bool) {
	if !open {
		m.sources[i] = nil
		return
	}
	m.heads[i] = &v
}
