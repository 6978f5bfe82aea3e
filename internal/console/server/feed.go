package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"tensorstack.dev/batch/internal/console/page"
)

// These are the times of streams.
const (
	// coalesce is how long a feed waits after a change for further ones. A feed whose rendering takes long waits
	// longer, so that it never takes more than a tenth of a processor.
	coalesce = 80 * time.Millisecond
	// moveInterval is the interval at which content that changes with time alone is rendered.
	moveInterval = 5 * time.Second
	// keepAlive is the longest time without a message.
	keepAlive = 20 * time.Second
)

// feeds are the streams of pages by their addresses. Viewers of one address share a feed, so that a change is rendered
// once for all of them.
type feeds struct {
	mu   sync.Mutex
	open map[string]*feed
	// closed is true after Close: no feed begins any more.
	closed  bool
	running sync.WaitGroup
}

// Close ends the streams of all pages and waits for the end of what renders them.
func (s *Server) Close() {
	s.feeds.mu.Lock()
	s.feeds.closed = true
	for _, f := range s.feeds.open {
		f.stop()
		f.mu.Lock()
		for viewer := range f.viewers {
			delete(f.viewers, viewer)
			close(viewer)
		}
		f.mu.Unlock()
	}
	s.feeds.mu.Unlock()
	s.feeds.running.Wait()
}

// feed is the stream of one page.
type feed struct {
	content
	mu sync.Mutex
	// sections are the sections as the viewers have them.
	sections []page.Section
	viewers  map[chan []byte]bool
	stop     context.CancelFunc
}

// stream sends the changes of a page until the viewer has gone.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c content) {
	f, messages := s.join(r.Context(), r.URL.RequestURI(), c)
	defer s.leave(r.URL.RequestURI(), f, messages)
	out := newEvents(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case m, open := <-messages:
			if !open || out.send("patch", m) != nil {
				return
			}
		case <-time.After(keepAlive):
			if out.ping() != nil {
				return
			}
		}
	}
}

// join adds a viewer to the feed of an address. The first message has everything, since the page may have been rendered
// a while ago.
func (s *Server) join(ctx context.Context, key string, c content) (*feed, chan []byte) {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	messages := make(chan []byte, 16)
	if s.feeds.closed {
		close(messages)
		return &feed{viewers: map[chan []byte]bool{}, stop: func() {}}, messages
	}
	if s.feeds.open == nil {
		s.feeds.open = map[string]*feed{}
	}
	f := s.feeds.open[key]
	if f == nil {
		// It lasts as long as it has viewers, whichever of them came first. Close waits for it.
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		f = &feed{content: c, viewers: map[chan []byte]bool{}, stop: stop}
		s.feeds.open[key] = f
		f.sections = s.sections(f)
		notices, end := s.Cache.Subscribe(c.topics...)
		s.feeds.running.Go(func() {
			defer end()
			s.run(ctx, f, notices)
		})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.viewers[messages] = true
	messages <- encode(f.sections)
	return f, messages
}

// leave removes a viewer. The feed ends with its last one.
func (s *Server) leave(key string, f *feed, messages chan []byte) {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.viewers, messages)
	if len(f.viewers) == 0 && s.feeds.open[key] == f {
		delete(s.feeds.open, key)
		f.stop()
	}
}

// run renders a feed after each change and sends what differs.
func (s *Server) run(ctx context.Context, f *feed, notices <-chan struct{}) {
	pause := coalesce
	for {
		var moved <-chan time.Time
		if f.moves != nil && f.moves() {
			moved = time.After(moveInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-notices:
		case <-moved:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		select { // what has changed meanwhile is rendered too
		case <-notices:
		default:
		}
		began := time.Now()
		f.update(s.sections(f))
		pause = max(coalesce, 10*time.Since(began))
	}
}

func (s *Server) sections(f *feed) []page.Section {
	data := f.make(time.Now())
	if data == nil {
		return []page.Section{{ID: "main", HTML: `<main id="main"><h1>It is gone</h1><p class="why">What this page showed was deleted.</p><p><a href="/">All jobs</a></p></main>`}}
	}
	all, err := s.pages.Sections(f.template, data)
	if err != nil {
		return nil
	}
	return all
}

// update sends the viewers what differs from the sections that they have. A viewer who does not keep up is sent away, and
// its browser connects again.
func (f *feed) update(now []page.Section) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := differing(f.sections, now)
	f.sections = now
	if len(changed) == 0 {
		return
	}
	message := encode(changed)
	for viewer := range f.viewers {
		select {
		case viewer <- message:
		default:
			delete(f.viewers, viewer)
			close(viewer)
		}
	}
}

// differing returns the sections, or the rows of sections, that differ.
func differing(before, now []page.Section) []page.Section {
	old := map[string]*page.Section{}
	for i := range before {
		old[before[i].ID] = &before[i]
	}
	var changed []page.Section
	for i := range now {
		o := old[now[i].ID]
		switch {
		case o != nil && o.HTML == now[i].HTML:
		case o != nil && sameOrder(o.Rows, now[i].Rows):
			changed = append(changed, differing(o.Rows, now[i].Rows)...)
		default:
			changed = append(changed, now[i])
		}
	}
	return changed
}

// sameOrder reports whether two lists of rows have the same identifiers in the same order.
func sameOrder(a, b []page.Section) bool {
	if len(a) == 0 || len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID {
			return false
		}
	}
	return true
}

// encode returns sections as a list of pairs of identifier and HTML.
func encode(sections []page.Section) []byte {
	pairs := make([][2]string, len(sections))
	for i := range sections {
		pairs[i] = [2]string{sections[i].ID, sections[i].HTML}
	}
	data, err := json.Marshal(pairs)
	if err != nil {
		return []byte("[]") // strings can always be encoded
	}
	return data
}

// events writes server-sent events.
type events struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return &events{w, http.NewResponseController(w)}
}

// send writes an event. The data must be one line.
func (e *events) send(name string, data []byte) error {
	if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, data); err != nil {
		return err
	}
	return e.c.Flush()
}

func (e *events) ping() error {
	if _, err := fmt.Fprint(e.w, ":\n\n"); err != nil {
		return err
	}
	return e.c.Flush()
}
