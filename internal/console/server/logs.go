package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/podlog"
)

// These are the bounds of logs.
const (
	// mostReaders is the largest number of pods whose logs are read at once.
	mostReaders = 100
	// oneTail is the largest number of lines of one replica, and allTail that of all replicas together.
	oneTail, allTail = 100_000, 100_000
	// firstTail is the number of lines of each replica that a page has without the script, firstPods that of the replicas,
	// and firstTimeout how long the page waits for them.
	firstTail, firstPods, firstTimeout = 200, 4, 2 * time.Second
	// gather is how long lines are gathered before they are sent, in the order of their times.
	gather = 150 * time.Millisecond
)

// logPod is a pod whose log is read.
type logPod struct {
	pod       *corev1.Pod
	replica   string
	container string
	index     int
}

// logQuery is the choice of logs in an address.
type logQuery struct {
	replica  string
	previous bool
}

func logQueryOf(r *http.Request) logQuery {
	q := r.URL.Query()
	return logQuery{q.Get("replica"), q.Get("previous") == "1"}
}

func (q logQuery) encode() string {
	v := url.Values{}
	if q.replica != "" {
		v.Set("replica", q.replica)
	}
	if q.previous {
		v.Set("previous", "1")
	}
	return v.Encode()
}

// replicasOf returns the names of a job's replicas, by role and rank, and the main container of each role.
func replicasOf(j *observed.Job) (names []string, containers map[string]string) {
	containers = map[string]string{}
	n := j.Kind.Convert(j.Object)
	for i := range n.Roles {
		role := &n.Roles[i]
		if role.Main < len(role.Template.Spec.Containers) {
			containers[role.Type] = role.Template.Spec.Containers[role.Main].Name
		}
		for rank := range role.Replicas {
			names = append(names, role.Type+"-"+strconv.Itoa(rank))
		}
	}
	return names, containers
}

// selected returns the present pods of a job that the query selects and that have begun, by replica.
func (s *visit) selected(j *observed.Job, q logQuery) []logPod {
	names, containers := replicasOf(j)
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	var all []logPod
	for _, p := range s.Cache.Pods(j) {
		role := p.Labels[batch.LabelReplicaType]
		name := role + "-" + p.Labels[batch.LabelReplicaRank]
		if (q.replica == "" || q.replica == name) && containers[role] != "" {
			all = append(all, logPod{p, name, containers[role], index[name]})
		}
	}
	slices.SortFunc(all, func(a, b logPod) int {
		return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.pod.Name, b.pod.Name))
	})
	return all
}

// state returns the state of the container whose log is read.
func (p *logPod) state() corev1.ContainerState {
	for i := range p.pod.Status.ContainerStatuses {
		if c := &p.pod.Status.ContainerStatuses[i]; c.Name == p.container {
			return c.State
		}
	}
	return corev1.ContainerState{}
}

func (p *logPod) ended() bool {
	return p.state().Terminated != nil || p.pod.Status.Phase == corev1.PodSucceeded || p.pod.Status.Phase == corev1.PodFailed
}

// source returns what makes the lines of the log for pages.
func (p *logPod) source() *view.LogSource {
	return &view.LogSource{Replica: p.replica, Colour: view.ColourOf(p.index)}
}

func (s *visit) open(p *logPod, q logQuery) podlog.Opener {
	open := podlog.OpenerOf(s.Core.Pods(p.pod.Namespace), p.pod.Name, p.pod.UID)
	return func(ctx context.Context, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		o.Container, o.Previous = p.container, q.previous
		return open(ctx, o)
	}
}

func (s *visit) logs(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		s.problem(w, r, http.StatusNotFound, "No such job", err.Error())
		return
	}
	q := logQueryOf(r)
	s.show(w, r, content{title: "Logs of " + j.GetName(), nav: "jobs", template: "logs", make: func(time.Time) any {
		row := view.RowOf(j)
		p := &view.LogsPage{JobRow: row, Replica: q.replica, Previous: q.previous, Hidden: s.Cache.HiddenPods(j),
			Stream: row.Path + "/logs/stream?" + q.encode(), Download: row.Path + "/logs/download?" + q.encode(),
			Command: fmt.Sprintf("t9k logs -f -n %s %s", j.GetNamespace(), j.Ref())}
		p.Replicas, _ = replicasOf(j)
		if role, rank, found := cutLast(q.replica); found {
			p.Command += " --role " + role + " --rank " + rank
		}
		p.Lines, p.State = s.firstLines(r.Context(), j, q)
		return p
	}})
}

// cutLast cuts a replica's name into role and rank.
func cutLast(name string) (role, rank string, found bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// firstLines returns the last lines of a few replicas, for a page without the script.
func (s *visit) firstLines(ctx context.Context, j *observed.Job, q logQuery) (lines []view.LogLine, state string) {
	pods := s.selected(j, q)
	if len(pods) == 0 {
		return nil, "There is no pod, so there is no output: the cluster does not keep the output of pods that are gone."
	}
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	tail := int64(firstTail)
	for i := range pods[:min(len(pods), firstPods)] {
		p := &pods[i]
		source := p.source()
		reader := podlog.Reader{Open: s.open(p, q), Options: corev1.PodLogOptions{TailLines: &tail}, Emit: func(l podlog.Line) {
			lines = append(lines, source.Line(l.Time, l.Text))
		}}
		if err := reader.Once(ctx); err != nil {
			lines = append(lines, source.Remark(complaint(err)))
		}
	}
	return lines, fmt.Sprintf("The last lines of %d of %d replicas.", min(len(pods), firstPods), len(pods))
}

// complaint returns why a log cannot be read.
func complaint(err error) string {
	switch {
	case errors.Is(err, podlog.ErrGone), apierrors.IsNotFound(err):
		return "the pod was deleted before all of its output was read"
	case apierrors.IsForbidden(err):
		return "you may not read the logs of pods in this namespace"
	default:
		return err.Error()
	}
}

// stamped is a line with its time.
type stamped struct {
	at   time.Time
	line view.LogLine
}

// logStream sends the lines of the selected pods as they are written, also of pods that come later, until the job ends.
func (s *visit) logStream(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	ctx, stop := s.guard(r.Context(), j.GetNamespace())
	t := &logTail{visit: s, job: j, query: logQueryOf(r), lines: make(chan stamped, 4096), ends: map[types.UID]*logEnd{}}
	defer t.readers.Wait()
	defer stop()
	notices, end := s.Cache.Subscribe(live.JobTopic(j.Kind.Name, j.GetNamespace(), j.GetName()))
	defer end()
	t.look(ctx)
	t.send(ctx, newEvents(w), notices)
}

// logTail reads the logs of a job's pods.
type logTail struct {
	*visit
	job   *observed.Job
	query logQuery
	lines chan stamped
	// ends holds the end of each pod whose log is read, by UID.
	ends    map[types.UID]*logEnd
	readers sync.WaitGroup
}

// logEnd tells a reader that its container has ended.
type logEnd struct {
	ended chan struct{}
	tell  func()
}

// look starts to read the logs of new pods, and tells the readers of pods that have ended or are gone.
func (t *logTail) look(ctx context.Context) {
	pods := t.selected(t.job, t.query)
	present := map[types.UID]bool{}
	tail := int64(oneTail)
	if len(pods) > 1 {
		tail = max(100, int64(allTail/min(len(pods), mostReaders)))
	}
	for i := range pods {
		p := &pods[i]
		present[p.pod.UID] = true
		e := t.ends[p.pod.UID]
		if st := p.state(); e == nil && (st.Running != nil || st.Terminated != nil) && len(t.ends) < mostReaders {
			ended := make(chan struct{})
			e = &logEnd{ended, sync.OnceFunc(func() { close(ended) })}
			t.ends[p.pod.UID] = e
			t.readers.Go(func() { t.read(ctx, p, tail, ended) })
		}
		if e != nil && (p.ended() || t.query.previous) {
			e.tell()
		}
	}
	for uid, e := range t.ends {
		if !present[uid] {
			e.tell()
		}
	}
}

func (t *logTail) read(ctx context.Context, p *logPod, tail int64, ended <-chan struct{}) {
	source := p.source()
	emit := func(at time.Time, line view.LogLine) {
		select {
		case t.lines <- stamped{at, line}:
		case <-ctx.Done():
		}
	}
	reader := podlog.Reader{Open: t.open(p, t.query), Options: corev1.PodLogOptions{TailLines: &tail}, Emit: func(l podlog.Line) { emit(l.Time, source.Line(l.Time, l.Text)) }}
	if err := reader.Follow(ctx, ended); err != nil && ctx.Err() == nil {
		emit(time.Now(), source.Remark(complaint(err)))
	}
}

// send sends gathered lines, in the order of their times, until the viewer has gone, or the job has ended and nothing more
// comes.
func (t *logTail) send(ctx context.Context, out *events, notices <-chan struct{}) {
	tick := time.NewTicker(gather)
	defer tick.Stop()
	var batch []stamped
	quiet := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-notices:
			t.look(ctx)
		case l := <-t.lines:
			batch = append(batch, l)
		case <-tick.C:
			if len(batch) == 0 {
				if t.over() && time.Since(quiet) > 2*time.Second {
					_ = out.send("end", []byte("the job has ended"))
					return
				}
				if time.Since(quiet) > keepAlive && out.ping() != nil {
					return
				}
				continue
			}
			quiet = time.Now()
			if out.sendLines(batch) != nil {
				return
			}
			batch = batch[:0]
		}
	}
}

// over reports whether the job has ended or is gone.
func (t *logTail) over() bool {
	j := t.Cache.Job(t.job.Kind, t.job.GetNamespace(), t.job.GetName())
	if j == nil {
		return true
	}
	finished, _ := observed.Finished(j.Status())
	return finished && !slices.ContainsFunc(t.selected(j, t.query), func(p logPod) bool { return !p.ended() })
}

func (e *events) sendLines(batch []stamped) error {
	slices.SortStableFunc(batch, func(a, b stamped) int { return a.at.Compare(b.at) })
	for len(batch) > 0 {
		part := batch[:min(len(batch), 5000)]
		batch = batch[len(part):]
		lines := make([]view.LogLine, len(part))
		for i := range part {
			lines[i] = part[i].line
		}
		data, err := json.Marshal(lines)
		if err != nil {
			return err
		}
		if err := e.send("lines", data); err != nil {
			return err
		}
	}
	return nil
}

// logDownload sends the whole logs of the selected pods as a file, one replica after the other.
func (s *visit) logDownload(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	q := logQueryOf(r)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="`+j.GetName()+`.log"`)
	pods := s.selected(j, q)
	for i := range pods {
		p := &pods[i]
		reader := podlog.Reader{Open: s.open(p, q), Emit: func(l podlog.Line) {
			_, _ = fmt.Fprintf(w, "%s %s %s\n", l.Time.UTC().Format(time.RFC3339Nano), p.replica, l.Text)
		}}
		if err := reader.Once(r.Context()); err != nil {
			_, _ = fmt.Fprintf(w, "--- %s: %s ---\n", p.replica, complaint(err))
		}
	}
}
