package localcmd

import (
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tensorstack.dev/batch/internal/local"
)

// newUp returns the command "up".
func newUp(c *cluster) *cobra.Command {
	o := local.Options{Runtime: local.RuntimeProcess, ContainerdSocket: local.DefaultContainerdSocket}
	bare, console := false, true
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, unless it is already running",
		Long: `Start the cluster in the background and wait until it is ready. If it is already running,
the command changes nothing. The cluster has the data of its earlier runs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			d, err := c.dir()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			began := time.Now()
			switch {
			case bare:
				o.Components = local.BareComponents()
			case !console:
				o.Components = local.WithoutConsole()
			}
			running := d.Running()
			if running && !optionsGiven(cmd) {
				config, err := d.Load()
				if err != nil {
					return err
				}
				o = config.Options
			}
			if !running {
				if err := local.CheckPodSupport(); err != nil {
					return err
				}
				fmt.Fprintf(out, "Starting cluster %s ...\n", d.Name())
			}
			started, err := local.Up(ctx, d, o, func(s local.ComponentStatus) {
				if !running {
					fmt.Fprintf(out, "  %-24s %4.1f s\n", s.Name, time.Since(began).Seconds())
				}
			})
			if err != nil {
				return err
			}
			if started {
				fmt.Fprintf(out, "Cluster %s is ready.\n", d.Name())
			} else {
				fmt.Fprintf(out, "Cluster %s is already running.\n", d.Name())
			}
			return printUse(out, d)
		},
	}
	f := cmd.Flags()
	f.Var((*runtimeValue)(&o.Runtime), "runtime", "container runtime: process (without images) or containerd")
	f.StringVar(&o.ContainerdSocket, "containerd-socket", o.ContainerdSocket, "socket of the containerd that runs on this machine")
	f.BoolVar(&bare, "bare", false, "start only Kubernetes, to install TensorStack Batch in it from its chart")
	f.BoolVar(&console, "console", true, "serve the console, which shows jobs in a browser; its address is only for you")
	f.BoolVar(&o.Fsync, "fsync", false, "make etcd wait for the disk: slower, but a crash of the machine loses no data")
	_ = cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions([]string{string(local.RuntimeProcess), string(local.RuntimeContainerd)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// printUse prints the commands with which the user can use the running cluster.
func printUse(out io.Writer, d local.Dir) error {
	console, err := d.ConsoleURL()
	if err != nil {
		return err
	}
	t9k := "t9k"
	if d.Name() != local.DefaultName {
		t9k += " --local=" + d.Name()
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\nRun a job:\t%s run -f MANIFEST\n", t9k)
	if console != "" {
		fmt.Fprintf(t, "Open the console:\t%s\n", console)
	}
	fmt.Fprintf(t, "Use kubectl:\texport KUBECONFIG=$(t9k local kubeconfig%s)\n", d.NameFlag())
	fmt.Fprintf(t, "Stop the cluster:\tt9k local down%s\n", d.NameFlag())
	_ = t.Flush() // fails only if the terminal is closed
	return nil
}

// optionsGiven reports whether the user set a flag of `up` itself.
func optionsGiven(cmd *cobra.Command) bool {
	given := false
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { given = given || f.Changed })
	return given
}

// runtimeValue is a flag value that accepts the name of a runtime.
type runtimeValue local.Runtime

func (v *runtimeValue) String() string { return string(*v) }
func (v *runtimeValue) Type() string   { return "string" }
func (v *runtimeValue) Set(s string) error {
	switch local.Runtime(s) {
	case local.RuntimeProcess, local.RuntimeContainerd:
		*v = runtimeValue(s)
		return nil
	}
	return fmt.Errorf("use %q or %q", local.RuntimeProcess, local.RuntimeContainerd)
}
