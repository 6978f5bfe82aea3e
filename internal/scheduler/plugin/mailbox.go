package plugin

import "sync"

// mailbox holds the messages to the planner. Posting one never waits, not even while a round runs, so handlers of
// events may post with locks held.
type mailbox struct {
	mu       sync.Mutex
	messages []func()
	// filled has an element if there may be messages.
	filled chan struct{}
}

func newMailbox() *mailbox { return &mailbox{filled: make(chan struct{}, 1)} }

func (b *mailbox) post(message func()) {
	b.mu.Lock()
	b.messages = append(b.messages, message)
	b.mu.Unlock()
	select {
	case b.filled <- struct{}{}:
	default:
	}
}

// take empties the mailbox.
func (b *mailbox) take() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages := b.messages
	b.messages = nil
	return messages
}
