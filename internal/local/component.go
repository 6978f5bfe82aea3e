package local

import (
	"context"
	"fmt"
	"slices"
)

// Component is one part of a cluster: either a program (Args), kept running, or a step (Run), done once.
type Component struct {
	Name string
	// Needs are the components that must have been ready once before this one starts. They come earlier in a plane.
	Needs []string
	// Uses are the components that must have been usable once before this one starts. They come earlier in a plane.
	Uses []string
	// Args are the arguments with which this binary runs the component.
	Args []string
	// Env are variables added to those of the machine process, as NAME=value.
	Env []string
	// Run does the step; it is done again, with a growing delay, until it succeeds.
	Run func(context.Context) error
	// Ready returns nil as soon as the component serves, and otherwise what is not yet as it should be.
	Ready func(context.Context) error
	// Usable returns nil as soon as those that use the component may start, if that is before it is ready.
	Usable func(context.Context) error
	// Cause returns why the component cannot serve until somebody does something about it, or nil if no such cause is seen. It may
	// be nil itself.
	Cause func() error
	// Drain ends what the program runs, before the program is ended with all others. It may be nil.
	Drain func(context.Context)
}

// checkPlane refuses components that are there twice, that need one that does not come before them, or that are
// neither a program nor a step.
func checkPlane(plane []Component) error {
	seen := map[string]bool{}
	for _, c := range plane {
		if seen[c.Name] {
			return fmt.Errorf("component %s is there twice", c.Name)
		}
		if (len(c.Args) == 0) == (c.Run == nil) {
			return fmt.Errorf("component %s must be either a program or a step", c.Name)
		}
		for _, n := range slices.Concat(c.Needs, c.Uses) {
			if !seen[n] {
				return fmt.Errorf("component %s needs %s, which does not come before it", c.Name, n)
			}
		}
		seen[c.Name] = true
	}
	return nil
}
