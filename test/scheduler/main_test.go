package scheduler

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	nodestages "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	podstages "sigs.k8s.io/kwok/kustomize/stage/pod/fast"

	"tensorstack.dev/batch/internal/testing/kwok"
)

// sideBySide is the number of tests that run at once. They wait most of their time.
const sideBySide = "8"

// kwokPart is the first argument that makes this program KWOK.
const kwokPart = "kwok"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == kwokPart {
		os.Args = os.Args[1:]
		exit(kwok.Run())
	}
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		if err := flag.Set("test.parallel", sideBySide); err != nil {
			exit(err)
		}
	}
	code := m.Run()
	stopShared()
	stopQuiet()
	os.Exit(code)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// labelSimulated is on the nodes that KWOK looks after. Pods run there as soon as they are bound, and go when they are deleted.
const labelSimulated = "simulated"

const kwokSettings = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageNodesWithLabelSelector: ` + labelSimulated + `
  podPlayStageParallelism: 8
  nodePlayStageParallelism: 2
  podsOnNodeSyncParallelism: 1
`

// startKWOK has a plane's simulated nodes run pods.
func (p *plane) startKWOK() error {
	file := filepath.Join(p.env.Dir, "kwok.yaml")
	documents := []string{kwokSettings, nodestages.DefaultNodeInit, podstages.DefaultPodReady, podstages.DefaultPodDelete}
	if err := os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = p.run(self, kwokPart, "--kubeconfig", p.env.Kubeconfig, "--config", file, "--v=WARN")
	return err
}

// process is a program beside the tests, which dies with them.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// run starts a program that works on a plane until the plane is stopped.
func (p *plane) run(program string, args ...string) (*process, error) {
	out, err := os.CreateTemp(p.env.Dir, "process-*.log")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	child := &process{cmd: exec.Command(program, args...), log: out.Name(), ended: make(chan struct{})}
	child.cmd.Stdout, child.cmd.Stderr = out, out
	child.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := child.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	go func() {
		defer close(child.ended)
		_ = child.cmd.Wait() // its log tells why it ended
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = append(p.processes, child)
	return child, nil
}

func (c *process) kill() {
	_ = c.cmd.Process.Kill() // it may have ended already
	<-c.ended
}
