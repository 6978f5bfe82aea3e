package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/podlog"
)

// Limits of a stream of logs.
const (
	// allTail is the largest number of lines with which a stream begins, for all replicas together.
	allTail = 100_000
	// flushInterval is how long lines are collected before they are sent. maxLinesPerMessage is the largest number of
	// lines that are sent together.
	flushInterval, maxLinesPerMessage = 150 * time.Millisecond, 5000
	// mergePatience is how long a stream waits for a line of slow logs before it sends the lines of the other logs
	// without them.
	mergePatience = 3 * time.Second
	// goneTime is how long a stream still reads the log of a deleted pod. It is limited, because the pod's node may
	// not answer.
	goneTime = 5 * time.Second
)

// logStream sends the lines of the selected pods as they are written, including pods that are created later, until the
// job finishes or is deleted. The parameter after is the ID of the last event that the viewer has received. The stream
// continues after this event.
func (s *visit) logStream(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	f := view.LogFilterOf(j, r.URL.Query())
	if f.Problem != "" {
		http.Error(w, f.Problem, http.StatusBadRequest)
		return
	}
	if s.Standing != nil {
		if err := s.Standing.Check(r.Context(), j.GetNamespace()); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
	}
	if r.Method == http.MethodHead {
		return // the script asks for the status code after its stream has ended
	}
	ctx, stop := s.guard(r.Context(), j.GetNamespace())
	t := &logTail{visit: s, job: j, filter: f, after: parsePositions(r.URL.Query().Get("after")), lines: make(chan logItem, 1024), merged: make(chan struct{}),
		readers: map[types.UID]*logReader{}, shown: map[string]bool{}, positions: map[types.UID]podlog.Position{}}
	defer t.running.Wait()
	defer stop()
	notices, end := s.Cache.Subscribe(live.JobTopic(j.Kind.Name, j.GetNamespace(), j.GetName()))
	defer end()
	t.begin(ctx)
	t.send(ctx, newEvents(w), notices)
}

// logTail reads the logs of a job's pods. Only the goroutine of the request uses it, except for visit, lines and
// merged, which the readers use too.
type logTail struct {
	*visit
	job    *observed.Job
	filter view.LogFilter
	// after holds the positions up to which the viewer already has logs, by keyOf of their pods.
	after map[string]podlog.Position
	// readers holds the readers of the selected pods, and the readers of earlier pods that have not finished, by UID.
	readers map[types.UID]*logReader
	// shown holds, by name, whether a replica is shown. At most view.ShownLogs replicas are.
	shown map[string]bool
	// positions holds the positions up to which logs have been sent, by UID of their pods.
	positions map[types.UID]podlog.Position
	// note describes the replicas that are not shown.
	note    string
	running sync.WaitGroup
	// Readers send to lines. Until merged is closed, readers that exist when the stream begins send to their own
	// backlog channels if there are several of them.
	lines  chan logItem
	merged chan struct{}
}

// logReader reads the log of one container for a stream.
type logReader struct {
	logPod
	// several is true if the page shows several replicas.
	several  bool
	tail     int64
	position podlog.Position
	// backlog receives the lines that the log has when the stream begins; nil if there is no other log to merge them
	// with.
	backlog chan logItem
	// end closes ended, which tells the reader that the container has terminated. done is closed when the reader has
	// finished.
	ended, done chan struct{}
	end         func()
	// abandon lets the reader end within goneTime. It is called when the pod was deleted or is no longer selected.
	abandon func()
}

// begin starts the readers of the existing pods. It merges, by time, the lines that their logs already have.
func (t *logTail) begin(ctx context.Context) {
	readers := t.look()
	var backlogs []<-chan logItem
	for _, r := range readers {
		if len(readers) > 1 {
			r.backlog = make(chan logItem)
			backlogs = append(backlogs, r.backlog)
		}
		t.start(ctx, r)
	}
	t.running.Go(func() {
		defer close(t.merged)
		podlog.Merge(ctx, backlogs, func(i logItem) time.Time { return i.at }, mergePatience, func(i logItem) {
			select {
			case t.lines <- i:
			case <-ctx.Done():
			}
		})
	})
}

// look updates the job, the note and the readers from the current pods, and returns readers for new pods, which the
// caller must start. It tells readers when their pods have ended, and calls forget for the other pods.
func (t *logTail) look() (begun []*logReader) {
	if now := t.present(); now != nil {
		t.job = now
	}
	pods := t.selected(t.job, &t.filter)
	failedFirst(pods)
	slices.SortStableFunc(pods, func(a, b logPod) int { return t.rank(&a) - t.rank(&b) })
	names, _ := replicasOf(t.job)
	tail := int64(allTail / max(1, min(len(pods), view.ShownLogs)))
	present, left, failed := map[types.UID]bool{}, 0, 0
	for _, p := range pods {
		present[p.pod.UID] = true
		if !t.shows(p.replica) {
			if left++; p.failed() {
				failed++
			}
			continue
		}
		r := t.readers[p.pod.UID]
		if r == nil {
			r = &logReader{logPod: p, several: len(names) > 1 && !t.filter.One(), tail: tail, position: t.after[keyOf(p.pod.UID)], ended: make(chan struct{}), done: make(chan struct{})}
			r.end = sync.OnceFunc(func() { close(r.ended) })
			if r.position.Seen > 0 {
				t.positions[p.pod.UID] = r.position
			}
			t.readers[p.pod.UID] = r
			begun = append(begun, r)
		}
		if p.ended() {
			r.end()
		}
	}
	t.forget(present)
	t.note = view.LogNote(len(pods)-left, len(pods), failed)
	return begun
}

// rank returns the sort key by which look puts some pods first: 0 for a pod whose log the viewer already has or whose
// replica is shown, and 1 for any other pod.
func (t *logTail) rank(p *logPod) int {
	if _, known := t.after[keyOf(p.pod.UID)]; known || t.shown[p.replica] {
		return 0
	}
	return 1
}

// shows reports whether a replica is shown. The decision is made once, so that the page keeps its replicas.
func (t *logTail) shows(replica string) bool {
	shown, known := t.shown[replica]
	if !known {
		n := 0
		for s := range maps.Values(t.shown) {
			if s {
				n++
			}
		}
		shown = n < view.ShownLogs
		t.shown[replica] = shown
	}
	return shown
}

// forget abandons the readers of pods that are not in present, because they were deleted or the filter no longer
// selects them. It removes the readers that have finished.
func (t *logTail) forget(present map[types.UID]bool) {
	for uid, r := range t.readers {
		if present[uid] {
			continue
		}
		r.abandon()
		select {
		case <-r.done:
			delete(t.readers, uid)
			delete(t.positions, uid)
		default:
		}
	}
}

// present returns the current state of the job; nil if the job was deleted or the caller may no longer see it.
func (t *logTail) present() *observed.Job {
	j := t.Cache.Job(t.job.Kind, t.job.GetNamespace(), t.job.GetName())
	if j == nil || j.GetUID() != t.job.GetUID() {
		return nil
	}
	return j
}

// start starts a reader in the background.
func (t *logTail) start(ctx context.Context, r *logReader) {
	ctx, stop := context.WithCancel(ctx)
	r.abandon = sync.OnceFunc(func() {
		r.end()
		time.AfterFunc(goneTime, stop)
	})
	t.running.Go(func() {
		defer stop()
		t.read(ctx, r)
	})
}

// read reads a log until the container has terminated and the whole log has been read, until the log cannot be read, or
// until ctx ends.
func (t *logTail) read(ctx context.Context, r *logReader) {
	defer close(r.done)
	source := r.source(r.several)
	backlog := r.backlog
	emit := func(i logItem) {
		select {
		case backlog <- i:
			return
		case <-t.merged:
		case <-ctx.Done():
			return
		}
		select {
		case t.lines <- i:
		case <-ctx.Done():
		}
	}
	first := r.attempt > 0 && r.position.Seen == 0
	reader := podlog.Reader{Open: t.open(&r.logPod), Options: corev1.PodLogOptions{TailLines: &r.tail}, Position: r.position, Emit: func(l podlog.Line) {
		if first {
			first = false
			emit(logItem{at: l.Time, line: source.Remark(fmt.Sprintf("attempt %d", r.attempt+1))})
		}
		emit(logItem{l.Time, source.Line(l.Time, l.Text), r.pod.UID})
	}}
	if backlog != nil {
		over := isClosed(r.ended)
		err := reader.Once(ctx) // Follow retries
		close(backlog)
		backlog = nil
		if err == nil && over {
			return
		}
		select {
		case <-t.merged:
		case <-ctx.Done():
		}
	}
	reader.Retrying = func(err error) {
		emit(logItem{at: time.Now(), line: source.Remark("the log cannot be read at present, trying again: " + complaint(err))})
	}
	if err := reader.Follow(ctx, r.ended); err != nil && ctx.Err() == nil {
		emit(logItem{at: time.Now(), line: source.Remark(complaint(err))})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// send sends the lines in batches, each in the order of its timestamps, and updates the readers after changes of the
// job. It returns when the viewer disconnects, or when the job has finished or was deleted and all logs are read.
func (t *logTail) send(ctx context.Context, out *events, notices <-chan struct{}) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	var batch []logItem
	quiet, noted, changed := time.Now(), "", false
	for {
		if t.note != noted {
			if noted = t.note; out.sendText("note", noted) != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-notices:
			changed = true
			continue
		case i := <-t.lines:
			if batch = append(batch, i); len(batch) < maxLinesPerMessage {
				continue
			}
		case <-tick.C:
			if changed { // coalesced, because the pods of a large job change often
				changed = false
				for _, r := range t.look() {
					t.start(ctx, r)
				}
			}
		}
		if len(batch) > 0 {
			if t.sendBatch(out, batch) != nil {
				return
			}
			batch, quiet = batch[:0], time.Now()
			continue
		}
		if ended, err := t.idle(out, &quiet); ended || err != nil {
			return
		}
	}
}

// idle is called while there are no lines to send. It ends the stream if no more lines can come, and otherwise keeps
// the connection alive. quiet is the time of the last message.
func (t *logTail) idle(out *events, quiet *time.Time) (ended bool, err error) {
	if why, over := t.over(); over && len(t.lines) == 0 {
		return true, out.send("end", []byte(why))
	}
	if time.Since(*quiet) > keepAlive {
		*quiet = time.Now()
		return false, out.ping()
	}
	return false, nil
}

// over reports whether there will be no more lines, and returns the reason for the user.
func (t *logTail) over() (why string, over bool) {
	for _, r := range t.readers {
		if !isClosed(r.done) {
			return "", false
		}
	}
	j := t.present()
	if j == nil {
		return "the job was deleted", true
	}
	finished, _ := observed.Finished(j.Status())
	return "the job has ended", finished && !slices.ContainsFunc(t.selected(j, &t.filter), func(p logPod) bool { return !p.ended() })
}

func (t *logTail) sendBatch(out *events, batch []logItem) error {
	lines := linesInOrder(batch)
	for i := range batch {
		if pod := batch[i].pod; pod != "" {
			p := t.positions[pod]
			p.Pass(batch[i].at)
			t.positions[pod] = p
		}
	}
	return out.sendLines(lines, idOf(t.positions))
}
