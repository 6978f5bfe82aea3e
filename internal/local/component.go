package local

import (
	"context"
	"fmt"
	"slices"
)

// Component is one part of a cluster: either a program (Args) that is kept running, or a step (Run) that is executed
// once.
type Component struct {
	Name string
	// Needs are the components that must have been ready once before this one starts. They come earlier in the list.
	Needs []string
	// Uses are the components that must have been usable once before this one starts. They come earlier in the list.
	Uses []string
	// Args are the command-line arguments with which the program runs the component.
	Args []string
	// Program is the path of the program. Empty means this binary.
	Program string
	// Env are variables, as NAME=value, that the component gets in addition to the environment of the machine process.
	Env []string
	// Run executes the step. The supervisor repeats it with a growing delay until it succeeds.
	Run func(context.Context) error
	// Ready returns nil if the program serves, and otherwise an error that says what is missing. It is nil for a step.
	Ready func(context.Context) error
	// Usable returns nil if the components that use this one may start even though Ready still fails. It may be nil.
	Usable func(context.Context) error
	// Cause returns an error if the component cannot serve until a person acts. The error says why. Cause may be nil.
	Cause func() error
	// Drain lets everything that the program runs terminate. When the supervisor ends, it calls Drain before it stops a
	// program that was ready once. Supervisor.Stop does not call Drain. Drain may be nil.
	Drain func(context.Context)
}

// validateComponents returns an error if a component is listed twice, depends on one that does not come before it, or
// is not exactly one of a program and a step.
func validateComponents(components []Component) error {
	seen := map[string]bool{}
	for _, c := range components {
		if seen[c.Name] {
			return fmt.Errorf("component %s is listed twice", c.Name)
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
