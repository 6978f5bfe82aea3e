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

// These are the bounds of a stream of logs.
const (
	// allTail is the largest number of lines that a stream begins with, of all replicas together, and leastTail that of each
	// if there are many replicas.
	allTail, leastTail = 100_000, 100
	// gather is how long lines are gathered before they are sent, and mostAtOnce the largest number of them.
	gather, mostAtOnce = 150 * time.Millisecond, 5000
	// mergePatience is for how long the end of one log is waited for before those of others are sent without it.
	mergePatience = 3 * time.Second
	// goneTime is for how long the log of a pod that is gone is still read: its node may not answer.
	goneTime = 5 * time.Second
)

// logStream sends the lines of the selected pods as they are written, also of pods that come later, until the job ends. The
// parameter after is the identifier of the last event that the viewer has: the stream goes on behind it.
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
		return // a script asks why its stream has ended
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

// logTail reads the logs of a job's pods. Only the goroutine of its request uses it, apart from what readers use.
type logTail struct {
	*visit
	job    *observed.Job
	filter view.LogFilter
	// after is how far the viewer already has logs, by keyOf their pods.
	after map[string]podlog.Position
	// readers hold what is read of each pod that is there, by UID.
	readers map[types.UID]*logReader
	// shown tells whether a replica is shown. Those that are not come when there are too many.
	shown map[string]bool
	// positions are how far logs have been sent.
	positions map[types.UID]podlog.Position
	// note tells what is not shown.
	note    string
	running sync.WaitGroup
	// Readers send to lines. Several that are there at the beginning send to channels of their own until merged is closed.
	lines  chan logItem
	merged chan struct{}
}

// logReader is what is read of a pod.
type logReader struct {
	logPod
	// several is true if the page shows several replicas.
	several  bool
	tail     int64
	position podlog.Position
	// backlog takes what the log has at the beginning; nil if there is nothing to merge it with.
	backlog chan logItem
	// ended is closed by end when the container has ended, and done when all of its log has been read.
	ended, done chan struct{}
	end         func()
	// abandon is called when the pod is gone.
	abandon func()
}

// begin starts to read what is there. The lines that several logs have now come in the order of their times.
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

// look finds new pods and returns what is to read them. It tells the readers of pods that have ended or are gone, and forgets
// those that have read everything.
func (t *logTail) look() (begun []*logReader) {
	if now := t.present(); now != nil {
		t.job = now
	}
	pods := t.selected(t.job, &t.filter)
	failedFirst(pods)
	slices.SortStableFunc(pods, func(a, b logPod) int { return t.rank(&a) - t.rank(&b) })
	names, _ := replicasOf(t.job)
	tail := max(leastTail, int64(allTail/max(1, min(len(pods), view.ShownLogs))))
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

// rank orders pods whose logs the viewer already has before others, and others before those that are not shown.
func (t *logTail) rank(p *logPod) int {
	if _, known := t.after[keyOf(p.pod.UID)]; known || t.shown[p.replica] {
		return 0
	}
	return 1
}

// shows reports whether a replica is shown. It is decided once, so that the replicas of a page stay the same.
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

// forget ends the readers of pods that are gone, and drops those that are done.
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

// present returns the job as it is now; nil if it is gone.
func (t *logTail) present() *observed.Job {
	j := t.Cache.Job(t.job.Kind, t.job.GetNamespace(), t.job.GetName())
	if j == nil || j.GetUID() != t.job.GetUID() {
		return nil
	}
	return j
}

// start reads a log in the background.
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

// read reads a log until its end.
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
		err := reader.Once(ctx) // Follow tries again
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

// send sends gathered lines, in the order of their times, until the viewer has gone, or the job has ended and nothing more
// comes.
func (t *logTail) send(ctx context.Context, out *events, notices <-chan struct{}) {
	tick := time.NewTicker(gather)
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
			if batch = append(batch, i); len(batch) < mostAtOnce {
				continue
			}
		case <-tick.C:
			if changed { // the pods of a large job change often
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
		if ended, err := t.rest(out, &quiet); ended || err != nil {
			return
		}
	}
}

// rest is called while no lines come. It ends the stream if none will, and otherwise keeps it open.
func (t *logTail) rest(out *events, quiet *time.Time) (ended bool, err error) {
	if why, over := t.over(); over && len(t.lines) == 0 {
		return true, out.send("end", []byte(why))
	}
	if time.Since(*quiet) > keepAlive {
		*quiet = time.Now()
		return false, out.ping()
	}
	return false, nil
}

// over reports whether nothing more comes, and why.
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
