// Package recorder records the history of a cluster's jobs in the archive. It watches jobs, their pods and their
// events, and reads the ends of the containers' logs when a pod has ended or is being deleted. It does not cache
// objects. After a restart it may write records again; the store ignores duplicates. Start reading at Start.
package recorder

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/metrics"
)

// Options configure a recorder.
type Options struct {
	// Config is the client configuration. Its user must be allowed to list and watch jobs, pods and events, and to get
	// the namespace kube-system. Without the right to get pods/log, the recorder keeps no logs. The recorder uses no
	// other rights.
	Config *rest.Config
	// Store is the archive to write to. The caller closes it, and must call Recorder.Wait first.
	Store *store.Store
	// Namespace is the namespace to record; empty for all.
	Namespace string
}

// Recorder writes to an archive until its context ends.
type Recorder struct {
	Options
	objects dynamic.Interface
	core    kubernetes.Interface
	logs    logReader

	mu      sync.Mutex
	pending store.Batch
	// waiting is when the oldest pending record was added; zero if no record is pending. writing is the same time for
	// the batch that is being written, or the time at which the writer took the batch if it has no records; zero if no
	// batch is being written.
	waiting, writing time.Time
	// room is signalled when the writer has taken the pending batch.
	room *sync.Cond
	// more tells the writer that records are pending.
	more chan struct{}
	// kinds and versions hold the kind and the resourceVersion of each existing job by UID.
	kinds    map[string]string
	versions map[string]int64
	// open holds the UIDs of attempts whose end is not recorded. attempts holds the last record of each existing pod by
	// UID.
	open     map[string]bool
	attempts map[string]*attempt
	// early holds the latest warnings about pods that the recorder has not seen yet. Most of these pods belong to no
	// job.
	early []*corev1.Event

	settled <-chan struct{}
	running sync.WaitGroup
	writes  *prometheus.CounterVec
}

// attempt is the last record of an existing pod with only the fields that the recorder needs, and the namespace of the
// pod.
type attempt struct {
	archive.Attempt
	namespace string
}

// Start starts a recorder and waits until the API server answers. It fails if the client may not get the namespace
// kube-system, or if the archive cannot be read or belongs to another cluster. The recorder runs until ctx ends; then
// call Wait.
func Start(ctx context.Context, o Options) (*Recorder, error) {
	r := &Recorder{Options: o, more: make(chan struct{}, 1), attempts: map[string]*attempt{}, writes: metrics.ConsoleArchiveWrites.Counter()}
	r.room = sync.NewCond(&r.mu)
	var err error
	if r.objects, err = dynamic.NewForConfig(o.Config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if r.core, err = kubernetes.NewForConfig(o.Config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	uid, err := clusterUID(ctx, r.core.CoreV1().Namespaces())
	if err != nil {
		return nil, err
	}
	if err := o.Store.Claim(ctx, uid); err != nil {
		return nil, err
	}
	known, err := o.Store.Known(ctx)
	if err != nil {
		return nil, err
	}
	r.kinds, r.versions, r.open = known.Jobs, known.Versions, known.Open
	r.logs = logReader{core: r.core.CoreV1(), emit: r.logged, begun: known.Logged, slots: make(chan struct{}, atOnce)}
	r.running.Go(func() { r.write(ctx) })
	r.running.Go(func() {
		<-ctx.Done()
		r.mu.Lock() // add holds the lock from its check of ctx until Wait, so it cannot miss this broadcast
		defer r.mu.Unlock()
		r.room.Broadcast()
	})
	r.watchAll(ctx)
	return r, nil
}

// clusterUID returns the UID of the namespace kube-system, which does not change during the lifetime of a cluster. It
// retries until the API server answers.
func clusterUID(ctx context.Context, namespaces corev1client.NamespaceInterface) (string, error) {
	for delay := firstDelay; ; delay = min(2*delay, maxDelay) {
		ns, err := namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		switch {
		case err == nil:
			return string(ns.UID), nil
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || ctx.Err() != nil:
			return "", fmt.Errorf("reading the UID of the namespace kube-system, which says whose archive this is: %w", err)
		}
		klog.FromContext(ctx).Error(err, "Cannot read which cluster this is", "retryAfter", delay)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// Settled returns a channel that is closed when the recorder has read the first list of every resource. It remains
// open while one of the resources cannot be listed.
func (r *Recorder) Settled() <-chan struct{} { return r.settled }

// Wait waits until the recorder has stopped and written its pending records.
func (r *Recorder) Wait() { r.running.Wait() }

// maxPending is the largest number of pending records. Beyond it, the watches wait until the database accepts writes
// again.
const maxPending = 20_000

// add calls f to add records to the pending batch. r.mu is locked during the call. add waits while too many records
// are pending.
func (r *Recorder) add(ctx context.Context, f func(*store.Batch)) {
	r.mu.Lock()
	for r.pending.Size() > maxPending && ctx.Err() == nil {
		r.room.Wait()
	}
	f(&r.pending)
	if r.waiting.IsZero() && r.pending.Size() > 0 {
		r.waiting = time.Now()
	}
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// Delays and timeouts of the writer.
const (
	// aliveInterval is how often the writer writes a batch even if no records are pending, which records that the
	// recorder is running.
	aliveInterval = 5 * time.Second
	firstDelay    = 100 * time.Millisecond
	maxDelay      = 5 * time.Second
	// minWriteTimeout is the smallest timeout of a write. Larger batches have longer timeouts. The last write has its
	// whole timeout even if the context has ended.
	minWriteTimeout = 5 * time.Second
)

// write writes the pending records as soon as the previous write has finished, until ctx ends. The last write begins
// after the end of ctx, so it includes the records that were added during the write before. write retries a write that
// failed.
func (r *Recorder) write(ctx context.Context) {
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for last := false; !last; {
		select {
		case <-ctx.Done():
		case <-r.more:
		case <-alive.C:
		}
		last = ctx.Err() != nil
		batch := r.take()
		for delay := firstDelay; ; delay = min(2*delay, maxDelay) {
			err := r.flush(ctx, batch)
			if err == nil || ctx.Err() != nil {
				r.written()
				last = last || err != nil // the database is away, so another write would only delay the end
				break
			}
			klog.FromContext(ctx).Error(err, "Cannot write to the archive", "records", batch.Size(), "retryAfter", delay)
			select {
			case <-ctx.Done():
			case <-time.After(delay):
			}
		}
	}
}

func (r *Recorder) take() *store.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	batch.At = time.Now()
	if r.writing = r.waiting; r.writing.IsZero() {
		r.writing = batch.At // a batch without records shows that the recorder is running
	}
	r.pending, r.waiting = store.Batch{}, time.Time{}
	r.room.Broadcast()
	return &batch
}

// flush writes a batch, even if ctx has just ended.
func (r *Recorder) flush(ctx context.Context, batch *store.Batch) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), max(minWriteTimeout, time.Duration(batch.Size())*10*time.Millisecond))
	defer stop()
	err := r.Store.Write(ctx, batch)
	result := "ok"
	if err != nil {
		result = "failed"
	}
	r.writes.WithLabelValues(result).Inc()
	return err
}

// job records a job. gone is true if the job has just been deleted.
func (r *Recorder) job(ctx context.Context, kind *kinds.Kind, raw *unstructured.Unstructured, gone bool) {
	j, err := archive.JobOf(kind, raw)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot record a job", "job", klog.KObj(raw))
		return
	}
	if gone {
		j.Gone = time.Now()
	}
	r.add(ctx, func(b *store.Batch) {
		if gone {
			delete(r.kinds, j.UID)
			delete(r.versions, j.UID)
		} else if r.versions[j.UID] >= j.Version {
			return
		} else {
			r.kinds[j.UID], r.versions[j.UID] = kind.Name, j.Version
		}
		b.Jobs = append(b.Jobs, j)
	})
}

// jobsAre records which jobs of a kind no longer exist. present holds the UIDs of all jobs of the kind that exist.
func (r *Recorder) jobsAre(ctx context.Context, kind *kinds.Kind, present map[string]bool) {
	r.add(ctx, func(b *store.Batch) {
		for uid, of := range r.kinds {
			if of == kind.Name && !present[uid] {
				delete(r.kinds, uid)
				delete(r.versions, uid)
				b.Gone = append(b.Gone, uid)
			}
		}
	})
}

// pod records the attempt of a pod, and starts to read its logs if the pod has ended or is being deleted. gone is true
// if the pod has just been deleted.
func (r *Recorder) pod(ctx context.Context, p *corev1.Pod, gone bool) {
	a, err := archive.AttemptOf(p)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot record a pod", "pod", klog.KObj(p))
		return
	}
	if a == nil {
		return
	}
	if gone {
		a.MarkDeleted(p, time.Now(), true)
		r.logs.forget(a.UID)
	} else if a.Outcome != "" || p.DeletionTimestamp != nil {
		r.running.Go(func() { r.logs.read(ctx, p, a) })
	}
	r.add(ctx, func(b *store.Batch) {
		last := r.attempts[a.UID]
		if last != nil {
			a.Follow(&last.Attempt)
		}
		switch {
		case gone:
			delete(r.attempts, a.UID)
		default:
			r.attempts[a.UID] = &attempt{archive.Attempt{Job: a.Job, Node: a.Node, Scheduled: a.Scheduled, Started: a.Started, Ended: a.Ended, Outcome: a.Outcome, Cause: a.Cause}, p.Namespace}
		}
		if a.Outcome != "" {
			delete(r.open, a.UID)
		} else {
			r.open[a.UID] = true
		}
		if last == nil || !last.Same(a) {
			b.Attempts = append(b.Attempts, a)
		}
		if last == nil {
			r.addEarly(ctx, b, p.UID)
		}
	})
}

// podsAre records which attempts no longer have a pod. present holds the UIDs of all pods that exist.
func (r *Recorder) podsAre(ctx context.Context, present map[string]bool) {
	r.add(ctx, func(b *store.Batch) {
		for uid := range r.attempts {
			if !present[uid] {
				delete(r.attempts, uid)
				r.logs.forget(uid)
			}
		}
		for uid := range r.open {
			if !present[uid] {
				delete(r.open, uid)
				b.Lost = append(b.Lost, uid)
			}
		}
	})
}

// event records an event about a job.
func (r *Recorder) event(ctx context.Context, e *corev1.Event) {
	record, err := archive.EventOf(e)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot record an event", "event", klog.KObj(e))
		return
	}
	if record.Job == "" {
		return
	}
	r.add(ctx, func(b *store.Batch) { b.Events = append(b.Events, record) })
}

// maxEarly is the largest number of warnings that wait for their pods.
const maxEarly = 1_000

// warning records a warning about a pod. If the recorder has not seen the pod yet, it keeps the warning until it sees
// the pod.
func (r *Recorder) warning(ctx context.Context, e *corev1.Event) {
	r.add(ctx, func(b *store.Batch) {
		if r.addWarning(ctx, b, e) {
			return
		}
		if len(r.early) == maxEarly {
			r.early = slices.Delete(r.early, 0, 1)
		}
		r.early = append(r.early, e)
	})
}

// addEarly adds the warnings about a pod that arrived before the recorder saw the pod.
func (r *Recorder) addEarly(ctx context.Context, b *store.Batch, pod types.UID) {
	r.early = slices.DeleteFunc(r.early, func(e *corev1.Event) bool { return e.InvolvedObject.UID == pod && r.addWarning(ctx, b, e) })
}

// addWarning adds a warning about a pod of a job. It returns false if the recorder does not know such a pod. The
// warning replaces an earlier one about the same pod with the same reason, because a job can wait for days and get new
// warnings about each pod every hour. The recorder ignores events in another namespace than the pod's, because their
// authors can name any UID.
func (r *Recorder) addWarning(ctx context.Context, b *store.Batch, e *corev1.Event) bool {
	a := r.attempts[string(e.InvolvedObject.UID)]
	if a == nil || a.namespace != e.Namespace {
		return false
	}
	record, err := archive.EventOf(e)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot record an event", "event", klog.KObj(e))
		return true
	}
	record.UID, record.Job = string(e.InvolvedObject.UID)+"/"+e.Reason, a.Job
	b.Events = append(b.Events, record)
	return true
}

// logged records the end of a container's log.
func (r *Recorder) logged(ctx context.Context, l *archive.Log) {
	r.add(ctx, func(b *store.Batch) { b.Logs = append(b.Logs, l) })
}

func uids[T metav1.Object](all []T) map[string]bool {
	set := make(map[string]bool, len(all))
	for _, o := range all {
		set[string(o.GetUID())] = true
	}
	return set
}
