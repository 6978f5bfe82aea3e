// Package localcmd is the command line of the embedded cluster.
package localcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/local"
)

// ErrSilent is returned by commands that have said what there is to say, and fail only for their exit code.
var ErrSilent = errors.New("")

// cluster is the flag that every command shares.
type cluster struct{ name string }

func (c *cluster) dir() (local.Dir, error) { return local.NamedDir(c.name) }

// New makes the command line.
func New() *cobra.Command {
	c := &cluster{}
	root := &cobra.Command{
		Use:         "t9k-local",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "t9k local"},
		Short:       "Run a Kubernetes cluster on this machine",
		Long: `Run a real Kubernetes on this machine, out of this one program: etcd, API server,
controller manager, scheduler, kubelet, DNS and the t9k-operator. Nothing needs to
be installed, and nothing of the machine is changed outside of the cluster's own
directory. Pods run as processes of this machine, without images. This separates
their names, networks and files, but is no protection from what they do.`,
		Example: `  t9k local up
  t9k run -f job.yaml
  t9k local down`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.PersistentFlags().StringVar(&c.name, "name", local.DefaultName, "which cluster; several can run side by side")
	_ = root.RegisterFlagCompletionFunc("name", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := local.Names() // nothing to propose then
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	root.AddCommand(newUp(c), newDown(c), newReset(c), newStatus(c), newLogs(c), newKubeconfig(c), newList(), newMachine())
	return root
}

// ending is how pods end with their cluster.
type ending struct{ grace time.Duration }

func (e *ending) addFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&e.grace, "grace", local.DefaultGrace, "how long pods may take to end; 0 kills them at once")
}

// validate refuses a time that nobody can mean.
func (e *ending) validate() error {
	if e.grace < 0 {
		return fmt.Errorf("--grace %s: use a time that is not negative, such as 30s", e.grace)
	}
	return nil
}

// progress returns a function that prints how many pods are left whenever that changes.
func (e *ending) progress(out io.Writer) func(local.ShutdownStatus) {
	last, began := 0, time.Now()
	return func(s local.ShutdownStatus) {
		switch {
		case s.Pods == last:
			return
		case last == 0:
			fmt.Fprintf(out, "Ending %s, within %s ...\n", pods(s.Pods), e.grace)
		case s.Pods == 0:
			fmt.Fprintf(out, "  %-24s %4.1f s\n", "all have ended", time.Since(began).Seconds())
		default:
			fmt.Fprintf(out, "  %-24s %4.1f s\n", pods(s.Pods)+" left", time.Since(began).Seconds())
		}
		last = s.Pods
	}
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

func newDown(c *cluster) *cobra.Command {
	e := &ending{}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the cluster and all its pods; its data stay",
		Long: `End every process of the cluster, its pods included, and remove its mounts and
network devices, also if parts of it were killed. Pods end as on a machine that
shuts down: they are asked to, have the grace period that they define, but at most
--grace, and are not charged for it. What is stored in the cluster stays, and is
there again after the next "up"; "reset" deletes that too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dir()
			if err := errors.Join(err, e.validate()); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			ran, err := local.Down(cmd.Context(), d, e.grace, e.progress(out))
			if err != nil {
				return err
			}
			switch {
			case ran:
				fmt.Fprintf(out, "Cluster %s is down. Its data stay in %s;\n%q deletes them.\n", d.Name(), tilde(string(d)), "t9k local reset"+nameFlag(d))
			case d.Exists():
				fmt.Fprintf(out, "Cluster %s was not running. Whatever was left of it is removed.\n", d.Name())
			default:
				fmt.Fprintf(out, "There is no cluster %s.\n", d.Name())
			}
			return nil
		},
	}
	e.addFlag(cmd)
	return cmd
}

func newReset(c *cluster) *cobra.Command {
	e := &ending{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "End the cluster and delete its data",
		Long:  `End the cluster as "down" does, and delete its data.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dir()
			if err := errors.Join(err, e.validate()); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if !d.Exists() {
				fmt.Fprintf(out, "There is no cluster %s.\n", d.Name())
				return nil
			}
			if _, err := local.Remove(cmd.Context(), d, e.grace, e.progress(out)); err != nil {
				return err
			}
			fmt.Fprintf(out, "Cluster %s is gone, with its data.\n", d.Name())
			return nil
		},
	}
	e.addFlag(cmd)
	return cmd
}

func newKubeconfig(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the path of the cluster's kubeconfig",
		Example: `  export KUBECONFIG=$(t9k local kubeconfig)`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.dir()
			if err != nil {
				return err
			}
			if err := mustExist(d); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), d.Kubeconfig())
			return nil
		},
	}
}

func mustExist(d local.Dir) error {
	if d.Exists() {
		return nil
	}
	return fmt.Errorf("there is no cluster %s; `t9k local up%s` makes it", d.Name(), nameFlag(d))
}

// nameFlag is how to name the cluster on the command line.
func nameFlag(d local.Dir) string {
	if d.Name() == local.DefaultName {
		return ""
	}
	return " --name " + d.Name()
}

// tilde shortens a path for people.
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
