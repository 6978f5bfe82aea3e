package testenv_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/await"
)

// helperVariable is the environment variable that turns this test binary into a program that starts an environment and
// waits to be killed.
const helperVariable = "T9K_TESTENV_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) == "" {
		os.Exit(m.Run())
	}
	env, err := testenv.New(testenv.Options{})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(env.Dir)
	select {}
}

// TestKilledTestLeavesNothing verifies that the environment of a killed test process stops and is removed.
func TestKilledTestLeavesNothing(t *testing.T) {
	if _, err := testenv.Binary(); err != nil { // built here rather than by the helper
		t.Fatal(err)
	}
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), helperVariable+"=1")
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	dir, err := bufio.NewReader(out).ReadString('\n')
	dir = strings.TrimSpace(dir)
	if err != nil || !filepath.IsAbs(dir) {
		t.Fatalf("the helper printed %q: %v", dir, err)
	}
	if len(processesOf(t, dir)) < 3 {
		t.Error("the environment has fewer than three processes")
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // reports the signal
	await.Until(t, "nothing remains", func() error {
		_, err := os.Stat(dir)
		gone := errors.Is(err, os.ErrNotExist)
		if left := processesOf(t, dir); !gone || len(left) > 0 {
			return fmt.Errorf("the directory is gone: %t; processes: %v", gone, left)
		}
		return nil
	})
}

// processesOf lists the processes that name dir in their command line.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, _ := os.ReadFile(f) // the process may have exited
		if strings.Contains(string(data), dir) {
			found = append(found, filepath.Dir(f))
		}
	}
	return found
}

// TestLinkFlagsMatchMakefile verifies that LinkFlags equals the flags in the Makefile.
func TestLinkFlagsMatchMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{}
	for line := range strings.Lines(string(makefile)) {
		if name, value, ok := strings.Cut(line, ":="); ok {
			variables["$("+strings.TrimSpace(name)+")"] = strings.TrimSpace(value)
		}
	}
	want := variables["$(LOCAL_LDFLAGS)"]
	for range variables {
		for name, value := range variables {
			want = strings.ReplaceAll(want, name, value)
		}
	}
	if got := testenv.LinkFlags; got != want {
		t.Errorf("the binary is linked with %q, by make with %q", got, want)
	}
}
