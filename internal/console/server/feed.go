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

// Time limits of streams.
const (
	// coalesce is how long a feed waits for further changes before it renders. A feed that takes long to render waits
	// longer, so that rendering uses at most a tenth of a CPU.
	coalesce = 80 * time.Millisecond
	// refreshInterval is the interval at which content that depends on the current time is rendered.
	refreshInterval = 5 * time.Second
	// keepAlive is the longest time between two messages of a stream.
	keepAlive = 20 * time.Second
)

// feeds holds the event streams of pages by caller and address. Viewers of one address with equal Caller.ID share a
// feed, so that each change is rendered once for all of them.
type feeds struct {
	mu   sync.Mutex
	open map[string]*feed
	// closed is true after Close, and prevents new feeds.
	closed  bool
	running sync.WaitGroup
}

// Close ends the streams of all pages, waits for their rendering goroutines, and closes the addresses of TensorBoards.
// It does not end streams of logs: they end with their requests.
func (s *Server) Close() {
	if s.Boards != nil {
		s.Boards.Close()
	}
	s.feeds.mu.Lock()
	s.feeds.closed = true
	for _, f := range s.feeds.open {
		f.stop()
		f.end()
	}
	s.feeds.mu.Unlock()
	s.feeds.running.Wait()
}

// feed is the event stream of one page. It runs while it has viewers, even after the viewer who started it has left.
type feed struct {
	// address is the address of the page. key is the key of the feed in feeds: Caller.ID and the address.
	address, key string
	// start starts the feed; each viewer calls it, and only the first call has an effect.
	start func()
	// joined is the number of viewers. The mutex of feeds guards it.
	joined int
	stop   context.CancelFunc

	mu sync.Mutex
	// content is the content of the newest viewer. Its functions use the token of this viewer, which probably expires
	// last.
	content content
	// sections are the sections that the viewers have.
	sections []page.Section
	viewers  map[chan []byte]bool
	// ended is true when the feed no longer accepts viewers.
	ended bool
}

// stream sends the changes of a page until the viewer disconnects or loses the right to see them, or until the feed
// disconnects the viewer.
func (s *visit) stream(w http.ResponseWriter, r *http.Request, c content) {
	ctx, stop := s.guard(r.Context(), "")
	defer stop()
	f, messages := s.join(r.Context(), r.URL.RequestURI(), c)
	if f == nil {
		return // the console is shutting down
	}
	defer s.leave(f, messages)
	out := newEvents(w)
	for {
		select {
		case <-ctx.Done():
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

// join adds a viewer to the feed of an address and a caller, and returns the channel of the messages to the viewer. The
// first message contains all sections, because the page may have been rendered some time ago. After Close, join returns
// nil or a closed channel.
func (s *visit) join(ctx context.Context, address string, c content) (*feed, chan []byte) {
	f := s.feedOf(ctx, address, c)
	if f == nil {
		return nil, nil
	}
	f.start()
	messages := make(chan []byte, 16)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		close(messages)
		return f, messages
	}
	f.viewers[messages] = true
	messages <- encode(f.sections)
	return f, messages
}

// feedOf returns the feed of an address and a caller, makes c its content and increments joined; nil after Close. The
// caller of feedOf must call start.
func (s *visit) feedOf(ctx context.Context, address string, c content) *feed {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	if s.feeds.closed {
		return nil
	}
	if s.feeds.open == nil {
		s.feeds.open = map[string]*feed{}
	}
	key := s.ID + " " + address
	f := s.feeds.open[key]
	if f == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		f = &feed{address: address, key: key, viewers: map[chan []byte]bool{}, stop: stop}
		f.start = sync.OnceFunc(func() { s.begin(ctx, f) })
		s.feeds.open[key] = f
		s.feeds.running.Add(1) // Close has not set closed yet, so Close does not wait yet
	}
	f.joined++
	f.mu.Lock()
	f.content = c
	f.mu.Unlock()
	return f
}

// shown returns the content of the feed.
func (f *feed) shown() content {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.content
}

// begin renders a feed for the first time, and starts a goroutine that updates the feed until it is stopped.
func (s *visit) begin(ctx context.Context, f *feed) {
	notices, end := s.Cache.Subscribe(f.shown().topics...)
	f.sections = s.rendered(f).sections
	go func() {
		defer s.feeds.running.Done()
		defer end()
		s.run(ctx, f, notices)
	}()
}

// leave removes a viewer. When the last viewer leaves, the feed ends.
func (s *visit) leave(f *feed, messages chan []byte) {
	f.mu.Lock()
	delete(f.viewers, messages)
	f.mu.Unlock()
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	if f.joined--; f.joined == 0 {
		delete(s.feeds.open, f.key)
		f.stop()
	}
}

// run renders a feed after each change, and every refreshInterval while the content depends on the current time. If the
// caller's rights can change, run also renders at the interval at which they are checked, and disconnects all viewers
// if the page no longer exists for them. It sends only the differences.
func (s *visit) run(ctx context.Context, f *feed, notices <-chan struct{}) {
	// next is the earliest time of the next rendering.
	var next time.Time
	var checked <-chan time.Time
	if s.Standing != nil {
		tick := time.NewTicker(s.Standing.Interval())
		defer tick.Stop()
		checked = tick.C
	}
	for {
		var due <-chan time.Time
		if changes := f.shown().timeDependent; changes != nil && changes() {
			due = time.After(refreshInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-notices:
		case <-due:
		case <-checked:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(coalesce, time.Until(next))):
		}
		select { // the rendering below includes the changes up to here
		case <-notices:
		default:
		}
		now := s.rendered(f)
		f.update(now.sections)
		if now.gone && s.Standing != nil {
			f.dismiss()
		}
		next = time.Now().Add(10 * now.took)
	}
}

// dismiss disconnects all viewers. Their browsers reconnect, and the server then answers with an error, because the
// page no longer exists for them.
func (f *feed) dismiss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
}

// end disconnects all viewers and rejects new ones.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.release()
}

// release closes the channels of all viewers. The caller holds the lock.
func (f *feed) release() {
	for viewer := range f.viewers {
		delete(f.viewers, viewer)
		close(viewer)
	}
}

// update sends the viewers the changes relative to the sections that they have. If a viewer does not keep up, update
// disconnects the viewer, whose browser then reconnects.
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

// differing returns the changed sections, or only their changed rows where possible.
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

// sameOrder reports whether two lists of rows have the same identifiers in the same order. It returns false for empty
// lists.
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

// encode returns sections as JSON: a list of pairs of ID and HTML.
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
