package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// localProgram is the program that runs the embedded cluster.
	localProgram = "t9k-local"
	// defaultLocal is the name of the embedded cluster that is meant when none is given.
	defaultLocal = "default"
)

func (a *app) localCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "local COMMAND",
		Short: "Start, show and remove the embedded cluster of this machine",
		Long: `Run t9k-local, the embedded Kubernetes of this machine, with the arguments given.
The program is looked for beside this one and then on PATH.`,
		Example:            a.example("t9k local up", "t9k local status", "t9k local down"),
		DisableFlagParsing: true,
		ValidArgs:          []string{"up", "status", "logs", "down", "reset", "kubeconfig"},
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findLocal()
			if err != nil {
				return err
			}
			if err := syscall.Exec(path, append([]string{localProgram}, args...), os.Environ()); err != nil {
				return fmt.Errorf("starting %s: %w", path, err)
			}
			return nil
		},
	}
}

// findLocal finds the program of the embedded cluster.
func findLocal() (string, error) {
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			beside := filepath.Join(filepath.Dir(self), localProgram)
			if path, err := exec.LookPath(beside); err == nil {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath(localProgram)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor on PATH; \"make build\" puts both into bin/", localProgram)
	}
	return path, nil
}

// localDir is the directory of an embedded cluster of this user.
func localDir(name string) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the state directory: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "t9k", "local", name), nil
}

// localKubeconfig is the kubeconfig of an embedded cluster that runs.
func localKubeconfig(name string) (string, error) {
	dir, err := localDir(name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("there is no embedded cluster %q; start it with \"t9k local up%s\"", name, nameFlag(name))
	}
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig of the embedded cluster %q: %w", name, err)
	}
	for _, c := range config.Clusters {
		if answers(c.Server) {
			return path, nil
		}
	}
	return "", fmt.Errorf("the embedded cluster %q is down; start it with \"t9k local up%s\"", name, nameFlag(name))
}

func nameFlag(name string) string {
	if name == defaultLocal {
		return ""
	}
	return " --name " + name
}

// answers tells whether something listens at an address of this machine.
func answers(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
