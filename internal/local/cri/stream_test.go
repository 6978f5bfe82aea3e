package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"

	"tensorstack.dev/batch/test/kit/await"
)

func TestExecSync(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	c := script("c", "exec sleep 1000")
	c.WorkingDir = "/some/dir"
	id := n.run(sb, c)
	r, err := n.ExecSync(n.ctx(), &pb.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "pwd; echo err >&2; exit 9"}})
	if err != nil || string(r.Stdout) != "/some/dir\n" || string(r.Stderr) != "err\n" || r.ExitCode != 9 {
		t.Errorf("%v, %v", r, err)
	}
	if _, code := n.sync(id, "sh", "-c", "kill -9 $$"); code != 137 {
		t.Errorf("killed: code %d", code)
	}
	begun := time.Now()
	_, err = n.ExecSync(n.ctx(), &pb.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "sleep 100 & sleep 101"}, Timeout: 1})
	if status.Code(err) != codes.DeadlineExceeded || time.Since(begun) > 50*time.Second {
		t.Errorf("timeout: %v after %s", err, time.Since(begun))
	}
	if _, err = n.ExecSync(n.ctx(), &pb.ExecSyncRequest{ContainerId: id, Cmd: []string{"t9k-no-such-program"}}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("unknown program: %v", err)
	}
	if out, _ := n.sync(id, "sh", "-c", "ps -o oom_score_adj= 2>/dev/null; cat /proc/self/oom_score_adj"); !strings.HasSuffix(out, "0\n") {
		t.Errorf("OOM score adjustment %q", out)
	}
	if _, err := n.StopContainer(n.ctx(), &pb.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err = n.ExecSync(n.ctx(), &pb.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("in a container that ended: %v", err)
	}
}

func executor(t *testing.T, address string) remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func wantCode(t *testing.T, err error, code int) {
	t.Helper()
	var exit utilexec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != code {
		t.Errorf("the command ended with %v, want exit code %d", err, code)
	}
}

func TestExecStreams(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	id := n.run(sb, script("c", "exec sleep 1000"))
	r, err := n.Exec(n.ctx(), &pb.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo err >&2; cat; exit 6"}, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	sent := strings.Repeat("0123456789abcdef", 1<<16)
	var stdout, stderr bytes.Buffer
	err = executor(t, r.Url).StreamWithContext(n.ctx(), remotecommand.StreamOptions{Stdin: strings.NewReader(sent), Stdout: &stdout, Stderr: &stderr})
	wantCode(t, err, 6)
	if stdout.String() != sent || stderr.String() != "err\n" {
		t.Errorf("%d bytes of output, want %d; errors %q", stdout.Len(), len(sent), stderr.String())
	}
}

// sizes is a queue of sizes to which the test changes a terminal.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	if size, ok := <-s; ok {
		return &size
	}
	return nil
}

// screen collects output and can be read while it grows.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screen) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), text)
}

func TestExecTerminal(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	id := n.run(sb, script("c", "exec sleep 1000"))
	r, err := n.Exec(n.ctx(), &pb.ExecRequest{ContainerId: id, Cmd: []string{"sh"}, Tty: true, Stdin: true, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	in, keyboard := io.Pipe()
	terminal, out := make(sizes), &screen{}
	done := make(chan error, 1)
	go func() {
		done <- executor(t, r.Url).StreamWithContext(n.ctx(), remotecommand.StreamOptions{Stdin: in, Stdout: out, Tty: true, TerminalSizeQueue: terminal})
	}()
	terminal <- remotecommand.TerminalSize{Width: 91, Height: 37}
	await.That(t, "the size arrives", func() bool {
		_, _ = io.WriteString(keyboard, "stty size\n")
		return out.has("37 91")
	})
	_, _ = io.WriteString(keyboard, "tty; echo $TERM\n")
	await.That(t, "the terminal has a name", func() bool { return out.has("/dev/pts/0") && out.has("xterm") })
	_, _ = io.WriteString(keyboard, "sleep 1000\n")
	await.That(t, "the program runs", func() bool {
		s, _ := n.sync(id, "ps", "-eo", "args,tty")
		return strings.Count(s, "sleep 1000") == 2
	})
	_, _ = io.WriteString(keyboard, "\x03exit 5\n") // Ctrl-C reaches the program, not the shell
	wantCode(t, <-done, 5)
	close(terminal)
}

// TestCommandsReceiveSignalsThatTheServerIgnores verifies that commands in containers do not inherit ignored signals
// from the server's process, for example under nohup.
func TestCommandsReceiveSignalsThatTheServerIgnores(t *testing.T) {
	signal.Ignore(syscall.SIGUSR1, syscall.SIGUSR2)
	n := start(t)
	sb, _ := n.sandbox("a")
	const ask = "grep SigIgn /proc/self/status"
	// ignored returns the ignored standard signals in the output of ask. It omits real-time signals, some of which a C
	// library may ignore for itself.
	ignored := func(text string) uint64 {
		var mask uint64
		if _, err := fmt.Sscanf(text, "SigIgn: %x", &mask); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return mask & (1<<31 - 1)
	}
	id := n.run(sb, script("c", ask+"; exec sleep 1000"))
	await.That(t, "the container's command prints the signals that it ignores", func() bool { return n.log(id) != "" })
	if got := n.log(id); ignored(got) != 0 {
		t.Errorf("a container's command has %q", got)
	}
	if got, _ := n.sync(id, "sh", "-c", ask); ignored(got) != 0 {
		t.Errorf("a command that is run in the container has %q", got)
	}
}

func TestExecEndsWithItsClient(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	id := n.run(sb, script("c", "exec sleep 1000"))
	for _, tty := range []bool{false, true} {
		r, err := n.Exec(n.ctx(), &pb.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", "while :; do echo up; sleep 0.01; done"}, Stdout: true, Tty: tty})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(n.ctx())
		out, done := &screen{}, make(chan error, 1)
		go func() {
			done <- executor(t, r.Url).StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Tty: tty})
		}()
		await.That(t, "the command runs", func() bool { return out.has("up") })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the client ended with %v", err)
		}
		await.That(t, "the command no longer runs", func() bool {
			s, _ := n.sync(id, "ps", "-eo", "args")
			return !strings.Contains(s, "echo up")
		})
	}
}

func TestAttach(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal %t", tty), func(t *testing.T) {
			c := script(fmt.Sprintf("c%t", tty), `echo up; while read x; do echo "got $x"; test "$x" = size && stty size; done; exit 8`)
			c.Stdin, c.StdinOnce, c.Tty = true, true, tty
			id := n.run(sb, c)
			r, err := n.Attach(n.ctx(), &pb.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: !tty, Tty: tty})
			if err != nil {
				t.Fatal(err)
			}
			in, keyboard := io.Pipe()
			out, done, terminal := &screen{}, make(chan error, 1), make(sizes)
			go func() {
				o := remotecommand.StreamOptions{Stdin: in, Stdout: out, Tty: tty}
				if tty {
					o.TerminalSizeQueue = terminal
				} else {
					o.Stderr = io.Discard
				}
				done <- executor(t, r.Url).StreamWithContext(n.ctx(), o)
			}()
			// A terminal echoes input even before the command runs, so the test first waits for output of the command.
			await.That(t, "the command runs", func() bool { return strings.HasPrefix(n.log(id), "up") })
			_, _ = io.WriteString(keyboard, "hello\n")
			await.That(t, "the command answers", func() bool { return out.has("got hello") })
			if tty {
				terminal <- remotecommand.TerminalSize{Width: 93, Height: 31}
				await.That(t, "the size arrives", func() bool {
					_, _ = io.WriteString(keyboard, "size\n")
					return out.has("31 93")
				})
				_, _ = io.WriteString(keyboard, "\x04")
			} else {
				keyboard.Close()
			}
			if err := <-done; err != nil {
				t.Errorf("the client ended with %v", err)
			}
			close(terminal)
			if st := n.exited(id); st.ExitCode != 8 {
				t.Errorf("the command ended with code %d", st.ExitCode)
			}
			if log := n.log(id); !strings.HasPrefix(log, "up") || !strings.Contains(log, "got hello") {
				t.Errorf("log %q", log)
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	c := script("c", "exec "+testProgram(t))
	c.Envs = []*pb.KeyValue{{Key: "T9K_TEST_ROLE", Value: []byte("echo")}, {Key: "T9K_TEST_ADDRESS", Value: []byte("127.0.0.1:7000")}}
	id := n.run(sb, c)
	await.That(t, "the server listens", func() bool { return n.log(id) == "listening\n" })
	r, err := n.PortForward(n.ctx(), &pb.PortForwardRequest{PodSandboxId: sb, Port: []int32{7000}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.Url)
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u), []string{"0:7000"}, stop, ready, io.Discard, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	<-ready
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, fmt.Sprintf("127.0.0.1:%d", ports[0].Local)); got != "word\n" {
		t.Errorf("through the port-forward: %q", got)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLogRotation(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	dir := t.TempDir()
	id := n.run(sb, gate("c", dir, "exit 0"))
	await.That(t, "the script runs", func() bool { return n.log(id) == "up\n" })
	path := n.status(id).LogPath
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ReopenContainerLog(n.ctx(), &pb.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if got := logText(t, path); got != "" {
		t.Errorf("the new log begins with %q", got)
	}
	write(t, dir+"/c", "")
	n.exited(id)
	if got := logText(t, path); got != "on\n" {
		t.Errorf("the new log holds %q", got)
	}
	if _, err := n.ReopenContainerLog(n.ctx(), &pb.ReopenContainerLogRequest{ContainerId: id}); err == nil {
		t.Error("the log of a container that ended was reopened")
	}
}

func TestStatsCountCPUAndMemory(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	// The text is anonymous memory of the shell. The kernel can drop pages of the shell's program file at any time.
	id := n.run(sb, script("c", `x=$(head -c 4194304 /dev/zero | tr '\0' x); while :; do :; done`))
	await.That(t, "CPU time and memory are counted", func() bool {
		s := n.stats(id)
		return s.Cpu.UsageCoreNanoSeconds.Value >= uint64(20*time.Millisecond) &&
			s.Memory.WorkingSetBytes.Value >= 4<<20 && s.Memory.RssBytes.Value >= 4<<20
	})
	if m := n.stats(id).Memory; m.WorkingSetBytes.Value > 64<<20 {
		t.Errorf("memory of a shell with a text of 4 MiB: %v", m)
	}
	list, err := n.ListContainerStats(n.ctx(), &pb.ListContainerStatsRequest{Filter: &pb.ContainerStatsFilter{PodSandboxId: sb}})
	if err != nil || len(list.Stats) != 1 || list.Stats[0].Attributes.Id != id {
		t.Errorf("%v, %v", list, err)
	}
}

func TestEvents(t *testing.T) {
	n := start(t)
	ctx, cancel := context.WithCancel(n.ctx())
	defer cancel()
	stream, err := n.GetContainerEvents(ctx, &pb.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// The server sends events only after it has received the call. The first event shows that it has.
	arrived := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		arrived <- err
	}()
	await.That(t, "the stream is open", func() bool {
		first, _ := n.sandbox("first")
		n.removeSandbox(first)
		return len(arrived) > 0
	})
	sb, _ := n.sandbox("a")
	id := n.run(sb, script("c", "exec sleep 1000"))
	n.removeSandbox(sb)
	var got []string
	for want := sb + " CONTAINER_DELETED_EVENT"; len(got) == 0 || got[len(got)-1] != want; {
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.ContainerId == sb || e.ContainerId == id {
			got = append(got, e.ContainerId+" "+e.ContainerEventType.String())
		}
	}
	want := fmt.Sprintf("[%[1]s CONTAINER_STARTED_EVENT %[2]s CONTAINER_CREATED_EVENT %[2]s CONTAINER_STARTED_EVENT "+
		"%[2]s CONTAINER_STOPPED_EVENT %[1]s CONTAINER_STOPPED_EVENT %[2]s CONTAINER_DELETED_EVENT %[1]s CONTAINER_DELETED_EVENT]", sb, id)
	if fmt.Sprint(got) != want {
		t.Errorf("events %v\nwant %s", got, want)
	}
}
