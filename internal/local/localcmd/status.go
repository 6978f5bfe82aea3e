package localcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"tensorstack.dev/batch/internal/local"
)

// newStatus returns the command "status".
func newStatus(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of the cluster and of its components",
		Long:  "Ask each component of the cluster whether it serves, and show the answers. The exit code is 1 unless all do.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.existing()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if !d.Running() {
				fmt.Fprintf(out, "Cluster %s is down; %q starts it.\n", d.Name(), "t9k local up"+d.NameFlag())
				return ErrSilent
			}
			status, err := local.NewClient(d).Probe(cmd.Context())
			if err != nil {
				return err
			}
			config, err := d.Load()
			if err != nil {
				return err
			}
			console, err := d.ConsoleURL()
			if err != nil {
				return err
			}
			printStatus(out, d, config, console, status, time.Now())
			if !status.Ready() {
				return ErrSilent
			}
			return nil
		},
	}
}

// printStatus prints the state of the cluster, its addresses and paths, and a table of its components. console is the
// address of the console; empty for none.
func printStatus(out io.Writer, d local.Dir, c *local.Config, console string, s *local.Status, now time.Time) {
	state := "ready"
	switch {
	case s.Shutdown != nil:
		state = fmt.Sprintf("stopping: %s left, for at most %s", pods(s.Shutdown.Pods), duration.HumanDuration(max(0, s.Shutdown.Deadline.Sub(now))))
	case !s.Ready():
		state = "not ready"
	}
	fmt.Fprintf(out, "Cluster %s is %s.\n\n", d.Name(), state)
	fmt.Fprintf(out, "API server  %s\nKubeconfig  %s\nRuntime     %s\nDirectory   %s\n", c.APIURL(), tilde(d.Kubeconfig()), c.Runtime, tilde(string(d)))
	if console != "" {
		fmt.Fprintf(out, "Console     %s\n", console)
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "COMPONENT\tSTATE\tFOR\tRESTARTS\tPID\t")
	for _, c := range s.Components {
		pid := ""
		if c.PID != 0 {
			pid = fmt.Sprint(c.PID)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", c.Name, c.State, duration.HumanDuration(now.Sub(c.Since)), c.Restarts, pid, firstLine(c.Message))
	}
	_ = t.Flush() // fails only if the terminal is closed
}

// firstLine returns s up to its first line break.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// newList returns the command "list".
func newList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the clusters of this user",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := local.Names()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), `There is no cluster; "t9k local up" creates one.`)
				return nil
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(t, "NAME\tSTATE\tAPI SERVER\tDIRECTORY")
			for _, name := range names {
				if err := listOne(cmd, t, name); err != nil {
					return err
				}
			}
			return t.Flush()
		},
	}
}

// listOne prints the row of one cluster.
func listOne(cmd *cobra.Command, out io.Writer, name string) error {
	d, err := local.NamedDir(name)
	if err != nil {
		return err
	}
	config, err := d.Load()
	if err != nil {
		return err
	}
	state, url := "Down", "-"
	if d.Running() {
		state, url = "Starting", config.APIURL()
		s, err := local.NewClient(d).Probe(cmd.Context())
		switch {
		case err == nil && s.Ready():
			state = "Ready"
		case err == nil && s.Shutdown != nil:
			state = "Stopping"
		case err != nil || slices.ContainsFunc(s.Components, func(c local.ComponentStatus) bool { return c.State == local.StateNotReady }):
			state = "NotReady"
		}
	}
	fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", name, state, url, tilde(string(d)))
	return nil
}
