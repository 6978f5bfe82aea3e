package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/cli/view"
)

// runSwitch is one of the switches in spec.runMode.
type runSwitch string

const (
	pauseSwitch runSwitch = "pause"
	debugSwitch runSwitch = "debug"
)

// steerOptions are those of the verbs that flip a switch.
type steerOptions struct {
	output output
	// done completes the sentence "genericjob/x …"; already does where nothing changes.
	done, already string
}

// flip sets a switch of the named jobs, each with one request.
func (a *app) flip(ctx context.Context, s runSwitch, on bool, o steerOptions, addresses []string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	jobs, err := c.findAll(ctx, addresses)
	if err != nil {
		return err
	}
	var failed []error
	for _, j := range jobs {
		if err := a.flipOne(ctx, c, j, s, on, o); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (a *app) flipOne(ctx context.Context, c *cluster, j *job, s runSwitch, on bool, o steerOptions) error {
	if finished, _ := view.Finished(j.status()); finished {
		return fmt.Errorf("%s has finished (%s), and what has finished never runs again", j.ref(), j.status().Phase)
	}
	was := switchedOn(j.raw, s)
	if was != on {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"runMode": map[string]any{string(s): map[string]any{"enabled": on}}}})
		if err != nil {
			return fmt.Errorf("writing the patch: %w", err)
		}
		raw, err := c.jobs(j.kind, j.GetNamespace()).Patch(ctx, j.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil {
			return fmt.Errorf("changing %s: %w", j.ref(), err)
		}
		j.raw = raw
	}
	switch o.output {
	case outputJSON, outputYAML:
		return printObject(a.Out, o.output, j.raw)
	case outputName:
		fmt.Fprintln(a.Out, j.ref())
		return nil
	}
	text := o.done
	if was == on {
		text = o.already
	}
	fmt.Fprintf(a.Out, "%s %s\n", j.ref(), text)
	if s == debugSwitch && on && switchedOn(j.raw, pauseSwitch) {
		fmt.Fprintf(a.Out, "It is paused, and pausing wins: \"%s resume %s\" starts its pods.\n", a.name, j.GetName())
	}
	return nil
}

// switchedOn reads a switch as the controller does: the older spelling counts where the newer one is unset.
func switchedOn(u *unstructured.Unstructured, s runSwitch) bool {
	for _, spelling := range []string{"enabled", "enable"} {
		if on, found, err := unstructured.NestedBool(u.Object, "spec", "runMode", string(s), spelling); found && err == nil {
			return on
		}
	}
	return false
}

// steerCommand is a verb that flips a switch of jobs.
func (a *app) steerCommand(cmd *cobra.Command, s runSwitch, on bool, o steerOptions) *cobra.Command {
	cmd.Args = needJobs
	cmd.ValidArgsFunction = a.completeJobs(-1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.flip(cmd.Context(), s, on, o, args) }
	addOutputFlag(cmd, &o.output, outputName, outputJSON, outputYAML)
	return cmd
}
