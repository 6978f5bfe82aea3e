package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

const (
	// idleTime is the time without a request after which an address is closed.
	idleTime = time.Hour
	// startTime is the longest time for which Open waits for a starting TensorBoard.
	startTime = 10 * time.Second
)

// ErrSuspended means that a TensorBoard is suspended and must be resumed first.
var ErrSuspended = errors.New("it is suspended")

// Boards holds the TensorBoards that a user of this machine has opened, each at its own local address. An address is
// closed after an hour without a request, or by Close. Methods can be called concurrently.
type Boards struct {
	client *Client
	idle   time.Duration
	ended  chan struct{}

	mu sync.Mutex
	// open holds the open addresses by the UID of their TensorBoard.
	open    map[types.UID]*Forward
	closed  bool
	running sync.WaitGroup
}

// NewBoards returns a Boards without open TensorBoards. The caller must call Close.
func NewBoards(c *Client) *Boards {
	return &Boards{client: c, idle: idleTime, ended: make(chan struct{}), open: map[types.UID]*Forward{}}
}

// Open returns a local address of a job's TensorBoard. If the TensorBoard is suspended, Open resumes it or, if resume
// is false, returns ErrSuspended. If the TensorBoard does not answer within startTime, the error contains the reason.
func (b *Boards) Open(ctx context.Context, j *observed.Job, resume bool) (string, error) {
	tb, err := b.client.Of(ctx, j)
	if err != nil {
		return "", err
	}
	if board.Suspended(tb) {
		if !resume {
			return "", ErrSuspended
		}
		if err := b.client.Resume(ctx, tb); err != nil {
			return "", err
		}
	}
	if tb, err = b.await(ctx, tb); err != nil {
		return "", err
	}
	return b.at(ctx, tb)
}

// await waits until a TensorBoard answers, for at most startTime. It returns an error as soon as the TensorBoard has a
// problem.
func (b *Boards) await(ctx context.Context, tb *tensorboard.TensorBoard) (*tensorboard.TensorBoard, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	why := ""
	ready, err := b.client.Await(ctx, tb.Namespace, tb.Name, func(c tensorboard.Condition) error {
		why = c.Message
		if board.Wrong(c) {
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("it does not answer yet: %s", cmp.Or(why, "the operator has not seen it; does the operator run?"))
	}
	return ready, err
}

// at returns the address of a TensorBoard. It starts forwarding unless the TensorBoard is already open.
func (b *Boards) at(ctx context.Context, tb *tensorboard.TensorBoard) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", errors.New("the console ends")
	}
	if f := b.open[tb.UID]; f != nil {
		f.tunnel.prefer(tb.Status.Pod.Reference)
		f.count(0) // opening the address counts as a request
		return f.URL, nil
	}
	f, err := b.client.Start(ctx, tb, 0)
	if err != nil {
		return "", err
	}
	b.open[tb.UID] = f
	b.running.Go(func() { b.keep(tb.UID, f) })
	return f.URL, nil
}

// keep closes an address when it has been idle for too long or when Close is called.
func (b *Boards) keep(uid types.UID, f *Forward) {
	defer f.Close()
	for {
		select {
		case <-b.ended:
			return
		case <-time.After(b.idle - f.Quiet()):
		}
		if b.forget(uid, f) {
			return
		}
	}
}

// forget removes an address if it has been idle for too long, and reports whether it has.
func (b *Boards) forget(uid types.UID, f *Forward) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.Quiet() < b.idle {
		return false
	}
	delete(b.open, uid)
	return true
}

// Close closes all addresses and waits until they are closed. Open then returns an error.
func (b *Boards) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.ended)
	}
	b.mu.Unlock()
	b.running.Wait()
}
