package planner

import (
	"sync"
	"time"
)

// mailbox is an unbounded queue of messages to the planner. post never blocks, not even during a round, so event
// handlers may call it while they hold locks.
type mailbox struct {
	mu       sync.Mutex
	messages []func(now time.Time)
	// arrival holds an element if there may be messages.
	arrival chan struct{}
}

func newMailbox() *mailbox { return &mailbox{arrival: make(chan struct{}, 1)} }

func (b *mailbox) post(message func(now time.Time)) {
	b.mu.Lock()
	b.messages = append(b.messages, message)
	b.mu.Unlock()
	select {
	case b.arrival <- struct{}{}:
	default:
	}
}

// take returns all messages and empties the mailbox.
func (b *mailbox) take() []func(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages := b.messages
	b.messages = nil
	return messages
}
