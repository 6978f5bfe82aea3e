package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tensorstack.dev/batch/test/kit/await"
)

// testSupervisor is a supervisor of shell scripts that write their starts and exits to a file.
type testSupervisor struct {
	*Supervisor
	events string
}

// script returns a component whose script runs until SIGTERM. The component is ready once the script has created a
// file.
func (w *testSupervisor) script(name string, needs ...string) Component {
	up := filepath.Join(filepath.Dir(w.events), name+".up")
	return Component{
		Name: name, Needs: needs,
		Args: []string{"-c", fmt.Sprintf(`
			trap 'echo -%[1]s >>%[2]s; exit 0' TERM
			echo +%[1]s >>%[2]s
			touch %[3]s
			while :; do sleep 0.02; done`, name, w.events, up)},
		Ready: func(context.Context) error {
			_, err := os.Stat(up)
			return err
		},
	}
}

func newTestSupervisor(t *testing.T) *testSupervisor {
	return &testSupervisor{events: filepath.Join(t.TempDir(), "events")}
}

// start starts a supervisor of these components. The supervisor runs until the end of the test or until the returned
// function is called.
func (w *testSupervisor) start(t *testing.T, components ...Component) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	var err error
	w.Supervisor, err = NewSupervisor("/bin/sh", components, func(c string) string { return filepath.Join(dir, c+".log") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		w.Run(ctx)
		close(done)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func (w *testSupervisor) log(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(w.events)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

func (w *testSupervisor) status(name string) ComponentStatus {
	return *(&Status{Components: w.Status()}).Component(name)
}

func (w *testSupervisor) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, func() error {
		if !holds() {
			return fmt.Errorf("%+v", w.Status())
		}
		return nil
	})
}

func (w *testSupervisor) awaitState(t *testing.T, name string, state State) {
	t.Helper()
	w.await(t, name+" "+string(state), func() bool { return w.status(name).State == state })
}

func TestSupervisorStartsInOrderAndEndsInReverse(t *testing.T) {
	w := newTestSupervisor(t)
	stop := w.start(t, w.script("a"), w.script("b", "a"), w.script("c", "a", "b"))
	w.awaitState(t, "c", StateReady)
	stop()
	want := []string{"+a", "+b", "+c", "-c", "-b", "-a"}
	if got := w.log(t); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestSupervisorWaitsForReadinessOfNeeds(t *testing.T) {
	w := newTestSupervisor(t)
	a := w.script("a")
	ready := make(chan struct{})
	a.Ready = func(context.Context) error {
		select {
		case <-ready:
			return nil
		default:
			return errors.New("still loading")
		}
	}
	w.start(t, a, w.script("b", "a"))
	w.await(t, "the reason that a is not ready", func() bool { return w.status("a").Message == "still loading" })
	if s := w.status("b"); s.State != StateWaiting || s.Message != "for a" {
		t.Errorf("b is %s %q before a is ready", s.State, s.Message)
	}
	close(ready)
	w.awaitState(t, "b", StateReady)
}

func TestSupervisorStartsUsersOfUsableComponents(t *testing.T) {
	w := newTestSupervisor(t)
	a := w.script("a")
	a.Usable, a.Ready = a.Ready, func(context.Context) error { return errors.New("still loading") }
	b := w.script("b")
	b.Uses = []string{"a"}
	w.start(t, a, b, w.script("c", "a"))
	w.awaitState(t, "b", StateReady)
	if s := w.status("c"); s.State != StateWaiting || s.Message != "for a" {
		t.Errorf("c, which needs a ready, is %s %q", s.State, s.Message)
	}
	if s := w.status("a"); s.State != StateStarting || s.Message != "still loading" {
		t.Errorf("a is %s %q while it is only usable", s.State, s.Message)
	}
}

func TestSupervisorRestartsKilledComponents(t *testing.T) {
	w := newTestSupervisor(t)
	w.start(t, w.script("a"), w.script("b", "a"))
	w.awaitState(t, "b", StateReady)
	other := w.status("b").PID
	for n := 1; n <= 3; n++ {
		pid := w.status("a").PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		w.await(t, "another process", func() bool {
			s := w.status("a")
			return s.State == StateReady && s.PID != pid && s.Restarts == n
		})
	}
	if got := w.status("b").PID; got != other {
		t.Errorf("b was restarted with a: %d, was %d", got, other)
	}
}

func TestSupervisorBacksOff(t *testing.T) {
	w := newTestSupervisor(t)
	w.start(t, Component{
		Name: "a", Args: []string{"-c", "date +%s%3N >>" + w.events + "; exit 3"},
		Ready: func(context.Context) error { return errors.New("never") },
	})
	w.await(t, "five starts", func() bool { return len(w.log(t)) >= 5 })
	var times []int
	for _, line := range w.log(t) {
		var ms int
		if _, err := fmt.Sscan(line, &ms); err != nil {
			t.Fatal(err)
		}
		times = append(times, ms)
	}
	for i, least := range []int{100, 200, 400, 800} {
		if gap := times[i+1] - times[i]; gap < least-5 {
			t.Errorf("start %d came %d ms after the one before, want at least %d", i+2, gap, least)
		}
	}
	w.await(t, "the reason of its end", func() bool {
		s := w.status("a")
		return s.State == StateCrashed && s.Message == "exit status 3"
	})
}

func TestSupervisorKeepsStoppedComponentsStopped(t *testing.T) {
	w := newTestSupervisor(t)
	w.start(t, w.script("a"))
	w.awaitState(t, "a", StateReady)
	if err := w.Stop("a"); err != nil {
		t.Fatal(err)
	}
	if got := w.log(t); !slices.Equal(got, []string{"+a", "-a"}) {
		t.Errorf("after Stop: events %v", got)
	}
	w.awaitState(t, "a", StateStopped)
	if err := w.Start("a"); err != nil {
		t.Fatal(err)
	}
	w.awaitState(t, "a", StateReady)
	if err := w.Kill("a"); err != nil {
		t.Fatal(err)
	}
	if s := w.status("a"); s.State == StateReady && s.Restarts == 0 {
		t.Error("after Kill: still reported as ready")
	}
	w.awaitState(t, "a", StateReady)
	if err := w.Stop("nothing"); err == nil {
		t.Error("stopped a component that does not exist")
	}
}

func TestSupervisorKillsComponentsThatIgnoreSIGTERM(t *testing.T) {
	w := newTestSupervisor(t)
	a := w.script("a")
	a.Args[1] = strings.Replace(a.Args[1], "exit 0", ":", 1)
	stop := w.start(t, a)
	w.awaitState(t, "a", StateReady)
	pid := w.status("a").PID
	stop()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d still exists: %v", pid, err)
	}
}

func TestSupervisorRepeatsAStepUntilItSucceeds(t *testing.T) {
	w := newTestSupervisor(t)
	attempts := 0
	step := Component{Name: "step", Run: func(context.Context) error {
		if attempts++; attempts < 3 {
			return errors.New("not yet")
		}
		return nil
	}}
	w.start(t, step, w.script("a", "step"))
	w.awaitState(t, "a", StateReady)
	if attempts != 3 || w.status("step").Restarts != 2 {
		t.Errorf("%d attempts, %d restarts", attempts, w.status("step").Restarts)
	}
}

// TestSupervisorStartsNothingAfterItsEnd verifies that a component that is about to start when the supervisor ends does
// not wait for the spawner, which has also ended.
func TestSupervisorStartsNothingAfterItsEnd(t *testing.T) {
	w := newTestSupervisor(t)
	s, err := NewSupervisor("/bin/sh", []Component{w.script("a")}, func(string) string { return os.DevNull })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.runOnce(ctx, s.components[0]) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the component ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the component waits forever")
	}
}

func TestSupervisorDrainsServersBeforeItStopsThem(t *testing.T) {
	w := newTestSupervisor(t)
	note := func(name string) func(context.Context) {
		return func(context.Context) {
			f, err := os.OpenFile(w.events, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			fmt.Fprintln(f, "drain-"+name)
		}
	}
	a, b, c := w.script("a"), w.script("b", "a"), w.script("c", "b")
	b.Drain, c.Drain = note("b"), note("c")
	c.Ready = func(context.Context) error { return errors.New("never") }
	stop := w.start(t, a, b, c)
	w.await(t, "the start of c", func() bool { return slices.Contains(w.log(t), "+c") })
	stop()
	want := []string{"+a", "+b", "+c", "-c", "drain-b", "-b", "-a"}
	if got := w.log(t); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestSupervisorProbesReadyComponents(t *testing.T) {
	w := newTestSupervisor(t)
	a, b := w.script("a"), w.script("b", "a")
	up := a.Ready
	var frozen atomic.Bool
	a.Ready = func(ctx context.Context) error {
		if frozen.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return up(ctx)
	}
	w.start(t, a, b, w.script("c"))
	for _, name := range []string{"a", "b", "c"} {
		w.awaitState(t, name, StateReady)
	}
	states := func() (states []State) {
		for _, c := range w.Probe(t.Context()) {
			states = append(states, c.State)
		}
		return states
	}
	if got, want := states(), []State{StateReady, StateReady, StateReady}; !slices.Equal(got, want) {
		t.Errorf("the components are %v, want %v", got, want)
	}
	frozen.Store(true)
	if got, want := states(), []State{StateNotReady, StateReady, StateReady}; !slices.Equal(got, want) {
		t.Errorf("with the first one frozen the components are %v, want %v", got, want)
	}
	if s := w.status("a"); s.State != StateReady || s.Restarts != 0 {
		t.Errorf("the probe changed a: %+v", s)
	}
}

func TestSupervisorReportsTheCause(t *testing.T) {
	w := newTestSupervisor(t)
	w.start(t, Component{
		Name: "a", Args: []string{"-c", "exit 3"},
		Ready: func(context.Context) error { return errors.New("no answer") },
		Cause: func() error { return errors.New("the disk is full") },
	})
	w.await(t, "the cause of its end", func() bool {
		s := w.status("a")
		return s.State == StateCrashed && s.Message == "the disk is full"
	})
}

// TestSupervisorRemovesAnObsoleteCause verifies that the status omits a cause that no longer exists, and that the
// component then restarts.
func TestSupervisorRemovesAnObsoleteCause(t *testing.T) {
	w := newTestSupervisor(t)
	var full atomic.Bool
	full.Store(true)
	a := w.script("a")
	free := filepath.Join(t.TempDir(), "free")
	a.Args[1] = "test -e " + free + " || exit 3;" + a.Args[1]
	a.Cause = func() error {
		if full.Load() {
			return errors.New("the disk is full")
		}
		return nil
	}
	w.start(t, a)
	w.await(t, "the cause of its ends", func() bool {
		s := w.status("a")
		return s.State == StateCrashed && s.Message == "the disk is full" && s.Blocked && s.Restarts >= 4
	})
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full.Store(false)
	if s := w.status("a"); s.Blocked {
		t.Errorf("with space on the disk the status is %+v", s)
	}
	w.awaitState(t, "a", StateReady)
}

func TestInvalidComponentsAreRefused(t *testing.T) {
	program := []string{"x"}
	for name, c := range map[string]struct {
		components []Component
		want       string
	}{
		"twice":   {[]Component{{Name: "a", Args: program}, {Name: "a", Args: program}}, "component a is listed twice"},
		"later":   {[]Component{{Name: "a", Args: program, Needs: []string{"b"}}, {Name: "b", Args: program}}, "component a needs b, which does not come before it"},
		"neither": {[]Component{{Name: "a"}}, "component a must be either a program or a step"},
	} {
		if err := validateComponents(c.components); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
