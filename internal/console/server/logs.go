package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/podlog"
)

// Limits of a page of logs without the script: firstTail is the number of lines per replica, firstPods the number of
// replicas, and firstTimeout how long the page waits for the lines.
const firstTail, firstPods, firstTimeout = 100, 8, 2 * time.Second

// archiveTimeout is how long the page of logs waits for the archived attempts of a replica.
const archiveTimeout = 2 * time.Second

// logPod is a pod whose log is read.
type logPod struct {
	pod *corev1.Pod
	// replica is the name of the replica, and index its position in the job. attempt counts from 0.
	replica        string
	index, attempt int
	container      string
	// init is true if container is an init container that failed. The main container then has no log.
	init bool
}

// replicasOf returns the replicas of a job as ROLE-RANK, in the order of the roles in the spec and then by rank. It
// also returns the name of the main container by role, without the roles that have no main container.
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

// selected returns the current pods of a job that the filter selects and that have started, in the order of replicasOf.
func (s *visit) selected(j *observed.Job, f *view.LogFilter) []logPod {
	names, containers := replicasOf(j)
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	var all []logPod
	for _, p := range s.Cache.Pods(j) {
		role := p.Labels[batch.LabelReplicaType]
		rank, _ := strconv.Atoi(p.Labels[batch.LabelReplicaRank]) // the operator writes rank and attempt as numbers
		attempt, _ := strconv.Atoi(p.Labels[batch.LabelReplicaAttempt])
		l := logPod{pod: p, replica: role + "-" + strconv.Itoa(rank), attempt: attempt, container: containers[role]}
		l.index = index[l.replica]
		if end := observed.End(p); end.Init {
			l.container, l.init = end.Container, true
		}
		if l.container != "" && l.begun() && f.Selects(role, rank, l.failed(), !l.ended()) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b logPod) int {
		return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.pod.Name, b.pod.Name))
	})
	return all
}

// failedFirst sorts the pods of failed replicas before all others.
func failedFirst(all []logPod) {
	rank := func(p *logPod) int {
		if p.failed() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b logPod) int { return cmp.Compare(rank(&a), rank(&b)) })
}

// state returns the state of the container whose log is read.
func (p *logPod) state() corev1.ContainerState {
	for _, c := range slices.Concat(p.pod.Status.InitContainerStatuses, p.pod.Status.ContainerStatuses) {
		if c.Name == p.container {
			return c.State
		}
	}
	return corev1.ContainerState{}
}

// begun reports whether the container has started, so that it has a log.
func (p *logPod) begun() bool { return p.state().Running != nil || p.state().Terminated != nil }

func (p *logPod) ended() bool {
	return p.state().Terminated != nil || p.pod.Status.Phase == corev1.PodSucceeded || p.pod.Status.Phase == corev1.PodFailed
}

func (p *logPod) failed() bool { return observed.End(p.pod).Failed }

// source returns the LogSource of the log. Its lines bear the name of the log if several is true, which means that the
// page shows several replicas, or if the container is an init container.
func (p *logPod) source(several bool) *view.LogSource {
	s := &view.LogSource{Colour: view.ColourOf(p.index)}
	if several || p.init {
		s.Replica = p.name()
	}
	return s
}

// name returns the name of the log: REPLICA, or REPLICA/CONTAINER for an init container that failed.
func (p *logPod) name() string {
	if p.init {
		return p.replica + "/" + p.container
	}
	return p.replica
}

func (s *visit) open(p *logPod) podlog.Opener {
	open := podlog.OpenerOf(s.Core.Pods(p.pod.Namespace), p.pod.Name, p.pod.UID)
	return func(ctx context.Context, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		o.Container = p.container
		return open(ctx, o)
	}
}

// complaint returns the reason why a log cannot be read, for the user.
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

func (s *visit) logs(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		s.missing(w, r, err, "/logs")
		return
	}
	f := view.LogFilterOf(j, r.URL.Query())
	s.show(w, r, content{title: "Logs of " + j.GetName(), nav: "jobs", template: "logs", make: func(now time.Time) any {
		in := s.Cache.Input(j, now)
		p := view.Logs(in, f)
		p.Hidden = s.Cache.HiddenPods(j)
		s.addAttempts(r.Context(), in, p)
		pods := s.selected(j, &f)
		failedFirst(pods)
		first := pods[:min(len(pods), firstPods)]
		p.Lines = s.firstLines(r.Context(), first, p.Several())
		p.Describe(len(first), len(pods))
		return p
	}})
}

// addAttempts adds links to the logs of attempts to a page. If there is an archive, it also adds the archived attempts
// of the job to in, and links to their logs. If the archive cannot be read, the page's note about earlier attempts
// gives the reason.
func (s *visit) addAttempts(ctx context.Context, in *view.JobInput, p *view.LogsPage) {
	present, inAnyState := "", p.Filter
	inAnyState.State = ""
	if pods := s.selected(in.Job, &inAnyState); inAnyState.One() && len(pods) > 0 {
		present = string(pods[0].pod.UID)
	}
	p.Archive = s.History != nil
	kept, err := s.keptOf(ctx, in.Job)
	if kept == nil {
		p.AddAttempts(in, present, "")
		if err != nil && p.Earlier != "" {
			p.Earlier = "The logs of earlier attempts cannot be shown: " + err.Error() + "."
		}
		return
	}
	in.AddArchived(kept.Attempts)
	p.AddAttempts(in, present, view.ArchivedPath(kept.UID))
}

// keptOf returns the archived records of a job; nil without an error if there is no archive.
func (s *visit) keptOf(ctx context.Context, j *observed.Job) (*archive.JobDetails, error) {
	if s.History == nil {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, archiveTimeout)
	defer stop()
	h, err := s.History(s.Caller)
	if err != nil {
		return nil, err
	}
	return h.Job(ctx, string(j.GetUID()))
}

// firstLines returns the last lines of the logs of pods in the order of their timestamps, for a page without the
// script. If a log cannot be read within firstTimeout, a remark after its lines gives the reason.
func (s *visit) firstLines(ctx context.Context, pods []logPod, several bool) []view.LogLine {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	tail := int64(firstTail)
	parts := make([][]logItem, len(pods))
	var reading sync.WaitGroup
	for i := range pods {
		reading.Go(func() {
			source := pods[i].source(several)
			last := time.Time{}
			reader := podlog.Reader{Open: s.open(&pods[i]), Options: corev1.PodLogOptions{TailLines: &tail}, Emit: func(l podlog.Line) {
				parts[i], last = append(parts[i], logItem{at: l.Time, line: source.Line(l.Time, l.Text)}), l.Time
			}}
			if err := reader.Once(ctx); err != nil {
				parts[i] = append(parts[i], logItem{at: last, line: source.Remark(complaint(err))})
			}
		})
	}
	reading.Wait()
	return linesInOrder(slices.Concat(parts...))
}

// logDownload sends the complete logs of the selected pods as a file, one replica after the other. If a log cannot be
// read, a line of the file gives the reason.
func (s *visit) logDownload(w http.ResponseWriter, r *http.Request) {
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
	attachment(w, "text/plain; charset=utf-8", j.GetName()+".log")
	pods := s.selected(j, &f)
	for i := range pods {
		p := &pods[i]
		reader := podlog.Reader{Open: s.open(p), Emit: func(l podlog.Line) {
			_, _ = fmt.Fprintf(w, "%s %s %s\n", l.Time.UTC().Format(time.RFC3339Nano), p.name(), l.Text)
		}}
		if err := reader.Once(r.Context()); err != nil {
			_, _ = fmt.Fprintf(w, "--- %s: %s ---\n", p.name(), complaint(err))
		}
	}
}
