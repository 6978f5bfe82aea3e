// Package localcmd is the command line of the embedded cluster. It parses flags and prints; package local does the
// work. Start reading at New.
package localcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	kubernetesversion "k8s.io/component-base/version"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/version"
)

// ErrSilent is the error of a command that has already printed its output. The program prints nothing more and exits
// with code 1.
var ErrSilent = errors.New("")

// cluster is the --name flag, which all commands share.
type cluster struct{ name string }

// dir returns the directory of the selected cluster.
func (c *cluster) dir() (local.Dir, error) { return local.NamedDir(c.name) }

// existing returns the directory of the selected cluster. If the cluster does not exist, the error tells the user to
// run "up".
func (c *cluster) existing() (local.Dir, error) {
	d, err := c.dir()
	if err == nil && !d.Exists() {
		err = fmt.Errorf("there is no cluster %s; `t9k local up%s` creates it", d.Name(), d.NameFlag())
	}
	return d, err
}

// New returns the root command.
func New() *cobra.Command {
	c := &cluster{}
	root := &cobra.Command{
		Use:         "t9k-local",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "t9k local"},
		Short:       "Run a Kubernetes cluster on this machine",
		Long: `Run a real Kubernetes on this machine: etcd, API server, controller manager,
scheduler, kubelet, DNS, the t9k-operator and the console, all in this one program.
You install nothing else. The files of the cluster are in its own directory; outside
of it, the cluster creates only host directories that pods mount. Pods run as
processes of this machine, without images. This separates their names, networks and
files, but does not protect the machine from them.`,
		Example: `  t9k local up
  t9k run -f job.yaml
  t9k local down`,
		Version:           version.Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate(version.Line(root.Name(), "Kubernetes "+kubernetesversion.Get().GitVersion))
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.PersistentFlags().StringVar(&c.name, "name", local.DefaultName, "name of the cluster; several can run side by side")
	_ = root.RegisterFlagCompletionFunc("name", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := local.Names() // on an error there are no completions
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	root.AddCommand(newUp(c), newDown(c), newReset(c), newStatus(c), newLogs(c), newKubeconfig(c), newConsole(c), newList(), newMachine())
	return root
}

// shutdownFlags are the flags of the commands that stop a cluster.
type shutdownFlags struct{ grace time.Duration }

// addFlag adds --grace to cmd.
func (f *shutdownFlags) addFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.grace, "grace", local.DefaultGrace, "longest time for pods to terminate; 0 kills them immediately")
}

// validate returns an error if the grace period is negative.
func (f *shutdownFlags) validate() error {
	if f.grace < 0 {
		return fmt.Errorf("--grace %s is negative: use a time such as 30s", f.grace)
	}
	return nil
}

// progress returns a function that prints the number of remaining pods each time it changes.
func (f *shutdownFlags) progress(out io.Writer) func(local.ShutdownStatus) {
	last, began := 0, time.Now()
	return func(s local.ShutdownStatus) {
		switch {
		case s.Pods == last:
			return
		case last == 0:
			fmt.Fprintf(out, "Stopping %s, for at most %s ...\n", pods(s.Pods), f.grace)
		case s.Pods == 0:
			fmt.Fprintf(out, "  %-24s %4.1f s\n", "all pods have ended", time.Since(began).Seconds())
		default:
			fmt.Fprintf(out, "  %-24s %4.1f s\n", pods(s.Pods)+" left", time.Since(began).Seconds())
		}
		last = s.Pods
	}
}

// pods formats a number of pods.
func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// newDown returns the command "down".
func newDown(c *cluster) *cobra.Command {
	f := &shutdownFlags{}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and all its pods, and keep its data",
		Long: `Stop every process of the cluster, including its pods, and remove its mounts and
network devices, even if parts of the cluster were killed. Pods terminate as on a
machine that shuts down: they get SIGTERM and their own grace period, but at most
--grace, and no restart counts. The data of the cluster remain, and the next "up" uses
them; "reset" deletes them too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dir()
			if err := errors.Join(err, f.validate()); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			ran, err := local.Down(cmd.Context(), d, f.grace, f.progress(out))
			if err != nil {
				return err
			}
			switch {
			case ran:
				fmt.Fprintf(out, "Cluster %s is down. Its data remain in %s;\n%q deletes them.\n", d.Name(), tilde(string(d)), "t9k local reset"+d.NameFlag())
			case d.Exists():
				fmt.Fprintf(out, "Cluster %s was not running. Its leftovers were removed.\n", d.Name())
			default:
				fmt.Fprintf(out, "There is no cluster %s.\n", d.Name())
			}
			return nil
		},
	}
	f.addFlag(cmd)
	return cmd
}

// newReset returns the command "reset".
func newReset(c *cluster) *cobra.Command {
	f := &shutdownFlags{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Stop the cluster and delete its data",
		Long:  `Stop the cluster as "down" does, and delete its data.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dir()
			if err := errors.Join(err, f.validate()); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if !d.Exists() {
				fmt.Fprintf(out, "There is no cluster %s.\n", d.Name())
				return nil
			}
			if _, err := local.Remove(cmd.Context(), d, f.grace, f.progress(out)); err != nil {
				return err
			}
			fmt.Fprintf(out, "Cluster %s and its data are deleted.\n", d.Name())
			return nil
		},
	}
	f.addFlag(cmd)
	return cmd
}

// newKubeconfig returns the command "kubeconfig".
func newKubeconfig(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the path of the cluster's kubeconfig",
		Example: `  export KUBECONFIG=$(t9k local kubeconfig)`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.existing()
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), d.Kubeconfig())
			return nil
		},
	}
}

// tilde replaces the user's home directory at the start of a path by ~.
func tilde(path string) string {
	home, err := os.UserHomeDir()
	if err != nil || home == "/" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, home+"/"); ok {
		return "~/" + rest
	}
	return path
}
