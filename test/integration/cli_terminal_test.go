package integration

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
)

// terminal is a pseudo-terminal that records everything written to its inner end.
type terminal struct {
	*testing.T
	outer, inner *os.File
	output       program.Log
}

func newTerminal(t *testing.T, width, height uint16) *terminal {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("making a terminal: %v", err)
		}
	}
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	check(unix.IoctlSetPointerInt(int(outer.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(outer.Fd()), unix.TIOCGPTN)
	check(err)
	inner, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	check(unix.IoctlSetWinsize(int(inner.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}))
	term := &terminal{T: t, outer: outer, inner: inner}
	go func() {
		_, _ = io.Copy(&term.output, outer) // returns an error when the inner end is closed
		outer.Close()
	}()
	t.Cleanup(func() {
		// exec leaves a pending read of its input behind, which would delay closing the file.
		_, _ = outer.WriteString("\n")
		inner.Close()
	})
	return term
}

// write types the text.
func (t *terminal) write(text string) {
	t.Helper()
	if _, err := t.outer.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// startOn starts t9k on a terminal, in the world's namespace.
func (w *world) startOn(t *terminal, args ...string) *called {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	c := &called{world: w, args: args, interrupt: cancel, code: make(chan int, 1)}
	line := append([]string{"t9k", "--kubeconfig", w.Env.Kubeconfig, "-n", w.Namespace}, args...)
	go func() {
		c.code <- cli.Main(ctx, line, genericiooptions.IOStreams{In: t.inner, Out: t.inner, ErrOut: t.inner})
	}()
	return c
}

func (t *terminal) await(w *world, text string) {
	t.Helper()
	w.Await(fmt.Sprintf("the terminal shows %q", text), func() error {
		if all := t.output.String(); !strings.Contains(all, text) {
			return fmt.Errorf("it shows %q", all)
		}
		return nil
	})
}

func TestCLIDrawsOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	w := newSerialWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("job", jobs.Role("w", 2, kubelet.Run)))
	w.awaitPhase("job", batch.JobRunning)

	term := newTerminal(t, 60, 12)
	watch := w.startOn(term, "get", "job", "--watch")
	term.await(w, "\x1b[32mRunning\x1b[0m")
	term.await(w, "w-1 ")
	// The pods' ages arrive on a separate watch.
	w.Await("ages are shown", func() error {
		lines := strings.Split(term.output.String(), "\n")
		for _, l := range lines {
			if strings.HasPrefix(l, "\x1b[Gw-0") && strings.Contains(l, "s\x1b[K") {
				return nil
			}
		}
		return fmt.Errorf("there are no ages: %q", lines)
	})
	w.finish("job-w-0", 0)
	term.await(w, "Succeeded")
	w.finish("job-w-1", 0)
	watch.ends(0)
	term.await(w, "genericjob/job \x1b[32mSucceeded\x1b[0m in ")
	all := term.output.String()
	w.contains("the terminal", all, "\x1b[5A", "\x1b[J", "genericjob/job \x1b[32mSucceeded\x1b[0m in ")

	t.Setenv("NO_COLOR", "1")
	plain := newTerminal(t, 60, 12)
	w.startOn(plain, "get").ends(0)
	plain.await(w, "Succeeded")
	if strings.Contains(plain.output.String(), "\x1b[") {
		t.Errorf("with NO_COLOR the output is %q", plain.output.String())
	}
}
