// Package runmode implements the verbs pause, resume and debug, which set the switches in spec.runMode of jobs.
package runmode

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/steer"
)

// Switch is one of the switches in spec.runMode.
type Switch = steer.Switch

// Switches in spec.runMode.
const (
	Pause = steer.Pause
	Debug = steer.Debug
)

// Options are the texts and the flags of a verb that sets a switch.
type Options struct {
	output kit.Format
	choice kit.Choice
	// Done completes the sentence "genericjob/x …". Already replaces Done if the switch already has the requested
	// value.
	Done, Already string
}

// flip turns a run-mode switch of the selected jobs on or off. It leaves out finished jobs that -l or --all selects; a
// finished job that is named is an error.
func flip(ctx context.Context, p *kit.Program, s Switch, on bool, o Options, addresses []string) error {
	c, jobs, err := p.Choose(ctx, &o.choice, addresses)
	if err != nil {
		return err
	}
	var changed []*kit.Job
	var failed []error
	ended := 0
	for _, j := range jobs {
		if finished, _ := observed.Finished(j.Status()); finished && len(addresses) == 0 {
			ended++ // -l and --all select the jobs that can still run
			continue
		}
		if err := flipOne(ctx, p, c, j, s, on, o); err != nil {
			failed = append(failed, err)
		} else {
			changed = append(changed, j)
		}
	}
	if (o.output == kit.JSON || o.output == kit.YAML) && len(changed) > 0 {
		failed = append(failed, kit.PrintJobs(p.Out, o.output, changed, len(addresses) == 1))
	}
	if ended > 0 && ended == len(jobs) {
		fmt.Fprintf(p.ErrOut, "Nothing to do: %s ended and never runs again.\n", haveEnded(jobs))
	}
	return errors.Join(failed...)
}

// haveEnded names the finished jobs, as the beginning of a sentence about them.
func haveEnded(jobs []*kit.Job) string {
	if len(jobs) == 1 {
		return jobs[0].Ref() + " has"
	}
	return fmt.Sprintf("each of the %d jobs has", len(jobs))
}

func flipOne(ctx context.Context, p *kit.Program, c *kit.Cluster, j *kit.Job, s Switch, on bool, o Options) error {
	if finished, _ := observed.Finished(j.Status()); finished {
		return fmt.Errorf("%s has finished (%s) and never runs again", j.Ref(), j.Status().Phase)
	}
	was := switchedOn(j.Raw, s)
	if was != on {
		raw, err := c.Steer().Set(ctx, j, s, on)
		if err != nil {
			return err
		}
		j.Raw = raw
	}
	switch o.output {
	case kit.JSON, kit.YAML: // flip prints all jobs at once
		return nil
	case kit.Name:
		fmt.Fprintln(p.Out, j.Ref())
		return nil
	}
	text := o.Done
	if was == on {
		text = o.Already
	}
	fmt.Fprintf(p.Out, "%s %s\n", j.Ref(), text)
	if s == Debug && on && switchedOn(j.Raw, Pause) {
		fmt.Fprintf(p.Out, "It is paused, and pause takes precedence: \"%s resume %s\" starts its pods.\n", p.Name, j.GetName())
	}
	return nil
}

// switchedOn returns the value of a switch as the controller reads it: the older spelling, enable, applies only if
// enabled is unset.
func switchedOn(u *unstructured.Unstructured, s Switch) bool {
	for _, spelling := range []string{"enabled", "enable"} {
		if on, found, err := unstructured.NestedBool(u.Object, "spec", "runMode", string(s), spelling); found && err == nil {
			return on
		}
	}
	return false
}

// Command makes cmd a verb that sets a switch of jobs, and returns it.
func Command(p *kit.Program, cmd *cobra.Command, s Switch, on bool, o Options) *cobra.Command {
	kit.AddChoiceFlags(cmd, &o.choice, "Every job of the namespace that has not ended")
	cmd.ValidArgsFunction = p.CompleteJobs(-1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return flip(cmd.Context(), p, s, on, o, args) }
	kit.AddOutputFlag(cmd, &o.output, kit.Name, kit.JSON, kit.YAML)
	return cmd
}
