package recorder

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/podlog"
)

// Limits for reading logs.
const (
	// KeptBytes is the largest size, in bytes, of the end of a log that the recorder keeps, not counting timestamps.
	KeptBytes = 64 << 10
	// fewLines is the number of lines to read first. If these lines are shorter than KeptBytes, the reader requests as
	// many lines as can fit into KeptBytes.
	fewLines = 1000
	// maxLine is the largest length of a line in bytes.
	maxLine = KeptBytes
	// atOnce is the largest number of logs that are read at the same time.
	atOnce = 32
	// readTime is the timeout of one request, and tries is how often the reader tries to read one log.
	readTime = 20 * time.Second
	tries    = 3
)

// logReader reads the logs of pods.
type logReader struct {
	core  corev1client.PodsGetter
	emit  func(context.Context, *archive.Log)
	slots chan struct{}

	mu sync.Mutex
	// begun holds the UIDs of pods whose logs are being read or were read after the pod ended. early holds the UIDs of
	// pods whose logs were read when the deletion of the pod was requested.
	begun, early map[string]bool
}

// read reads the logs of a pod that has ended or is being deleted. If a pod is being deleted, read does not wait for
// its end, because the logs may be gone once the pod has ended. It reads the logs at most once before and once after
// the end.
func (l *logReader) read(ctx context.Context, p *corev1.Pod, a *archive.Attempt) {
	if !l.begin(a) {
		return
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-l.slots }()
	for _, name := range withLogs(p) {
		if err := l.container(ctx, p, a, name); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsBadRequest(err) {
			klog.FromContext(ctx).V(2).Info("Cannot read the log of a pod", "pod", klog.KObj(p), "container", name, "problem", err)
		}
	}
}

// withLogs returns the names of the containers whose logs the recorder keeps: the containers that have started, and an
// init container whose failure kept the others from starting.
func withLogs(p *corev1.Pod) (names []string) {
	if end := observed.End(p); end.Init {
		names = append(names, end.Container)
	}
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.State.Running != nil || c.State.Terminated != nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// begin reports whether the logs of an attempt must be read, and records that the caller reads them.
func (l *logReader) begin(a *archive.Attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.early == nil {
		l.early = map[string]bool{}
	}
	set := l.begun
	if a.Outcome == "" {
		set = l.early
	}
	if set[a.UID] {
		return false
	}
	set[a.UID] = true
	return true
}

// forget drops the state of a pod that no longer exists.
func (l *logReader) forget(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.begun, uid)
	delete(l.early, uid)
}

// container reads the end of the log of a container and passes it to emit, unless the log is empty or belongs to a
// later pod of the same name.
func (l *logReader) container(ctx context.Context, p *corev1.Pod, a *archive.Attempt, container string) error {
	var err error
	for try := range tries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(try) * time.Second):
			}
		}
		var end *tail
		if end, err = l.request(ctx, p, container, fewLines); err == nil && end.size < KeptBytes && end.lines >= fewLines {
			end, err = l.request(ctx, p, container, KeptBytes)
		}
		switch {
		case err == nil && (len(end.text) == 0 || end.later(a)):
			return nil
		case err == nil:
			l.emit(ctx, &archive.Log{Attempt: a.UID, Job: a.Job, Container: container, At: time.Now(), Text: end.text, Cut: end.cut})
			return nil
		case apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err):
			return err
		}
	}
	return err
}

func (l *logReader) request(ctx context.Context, p *corev1.Pod, container string, lines int64) (*tail, error) {
	ctx, stop := context.WithTimeout(ctx, readTime)
	defer stop()
	open := podlog.OpenerOf(l.core.Pods(p.Namespace), p.Name, p.UID)
	log, err := open(ctx, &corev1.PodLogOptions{Container: container, Timestamps: true, TailLines: &lines})
	if err != nil {
		return nil, err
	}
	defer log.Close()
	end := &tail{}
	if err := end.copy(log); err != nil {
		return nil, err
	}
	end.cut = end.cut || end.lines >= int(lines)
	return end, nil
}

// tail is the end of a log, with timestamps.
type tail struct {
	text []byte
	// size is the length of the text in bytes without timestamps, and sizes holds the length of each line.
	size  int
	sizes []int
	// lines is the number of lines that were read.
	lines int
	cut   bool
}

func (t *tail) copy(log io.Reader) error {
	r := bufio.NewReaderSize(log, 4096)
	for {
		line, err := readLine(r)
		if len(line) > 0 {
			t.add(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine returns a line with its line break. It truncates lines that are longer than maxLine. At the end of the log,
// it returns io.EOF and the rest, which has no line break.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLine - len(line); len(part) > room {
			line = append(line, part[:max(room, 0)]...)
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if n := len(line); err == nil && n > 0 && line[n-1] != '\n' {
			line = append(line, '\n')
		}
		return line, err
	}
}

func (t *tail) add(line []byte) {
	_, bare, stamped := bytes.Cut(line, []byte{' '})
	if !stamped {
		bare = line
	}
	t.lines++
	t.text = append(t.text, line...)
	t.sizes = append(t.sizes, len(bare))
	t.size += len(bare)
	for t.size > KeptBytes && len(t.sizes) > 1 {
		t.size -= t.sizes[0]
		t.sizes = t.sizes[1:]
		t.text = t.text[bytes.IndexByte(t.text, '\n')+1:]
		t.cut = true
	}
}

// clockTolerance is how much later than the recorded end of an attempt its log may begin. One second is needed because
// the end is recorded in whole seconds. The other second is a margin.
const clockTolerance = 2 * time.Second

// later reports whether the log began after the end of the attempt and therefore belongs to the next pod of the same
// name.
func (t *tail) later(a *archive.Attempt) bool {
	stamp, _, _ := bytes.Cut(t.text, []byte{' '})
	first, err := time.Parse(time.RFC3339Nano, string(stamp))
	return err == nil && a.Outcome != "" && first.After(a.Ended.Add(clockTolerance))
}
