package localcmd_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
)

// TestOrdinaryUserRunsACluster verifies a cluster of a user without privileges: pods reach each other and the API
// server, the API server, the console and the archive are reachable from the machine, and nothing remains after a down,
// even if the machine process was killed.
func TestOrdinaryUserRunsACluster(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	if os.Geteuid() != 0 {
		require.Missing(t, "root, to become another user")
	}
	becomeNobody(t, u)
	if out, err := u.try(t.Context(), "up"); err != nil {
		if strings.Contains(out, "in a user namespace") {
			require.Missing(t, out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	if !configOf(t, u.dir("default")).Rootless {
		t.Fatal("the cluster is not in a user namespace")
	}
	podsFindEachOther(t, u, "default")
	checkConsole(t, strings.TrimSpace(u.t9k(t, "console")))
	if out, err := u.history(t, "list"); err != nil {
		t.Errorf("history: %v\n%s", err, out)
	}
	config := configOf(t, u.dir("default"))
	c := u.client(t, "default")
	create(t, c, pod("runs", "sleep 1000000"))
	awaitPhase(t, c, "runs", corev1.PodRunning)
	kill(t, u.status(t, "default").PID)
	u.t9k(t, "down")
	// The kernel kills the components with the machine process, and down does not wait until they have exited.
	await.Until(t, "nothing remains of the killed cluster", func() error {
		if found := u.traces(t, "default", config); len(found) > 0 {
			return errors.New(strings.Join(found, ", "))
		}
		return nil
	})
	u.t9k(t, "up")
	awaitPhase(t, u.client(t, "default"), "runs", corev1.PodFailed)
	u.t9k(t, "down")
	u.leavesNothing(t, "default", config)
	u.t9k(t, "reset")
}

// becomeNobody makes an ordinary user the owner of u's state directory. From then on, u runs commands as this user,
// from a copy of the program that everyone may run.
func becomeNobody(t *testing.T, u *user) {
	t.Helper()
	const nobody = 65534
	in, err := os.Open(u.binary)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	binary := filepath.Join(u.state, "t9k-local")
	out, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(u.state, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	u.binary, u.id = binary, nobody
}
