package view

import (
	"fmt"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// Action is an action of a user on a job.
type Action struct {
	// Verb is the last part of the path to which the action is posted.
	Verb, Title string
	// Effect describes what the action does.
	Effect string
	// Command is the equivalent t9k command.
	Command string
	// Dangerous is true if the action cannot be undone.
	Dangerous bool
	// Min and Max are the bounds of the number that the action asks for, and Now is its current value; all are zero
	// if the action asks for no number.
	Min, Max, Now int
	// Name is the proposed name of the copy that rerun creates. JobOf sets it, and adds it to Command; otherwise it is
	// empty.
	Name string
}

// Actions returns the actions that are possible in the job's current state, whatever the rights of the user.
func Actions(j *observed.Job) []Action {
	command := func(words string) string {
		return fmt.Sprintf("t9k %s -n %s %s", words, j.GetNamespace(), j.Ref())
	}
	var all []Action
	if finished, _ := observed.Finished(j.Status()); !finished {
		n := j.Kind.Convert(j.Object)
		if n.Pause {
			all = append(all, Action{Verb: "resume", Title: "Resume", Effect: "Starts the replicas that have not finished.", Command: command("resume")})
		} else {
			all = append(all, Action{Verb: "pause", Title: "Pause", Effect: "Ends the pods and keeps the job with its counts and results.", Command: command("pause")})
		}
		if n.Debug {
			all = append(all, Action{Verb: "debug-off", Title: "Leave debug mode", Effect: "Replaces the idle pods by pods that run the job.", Command: command("debug off")})
		} else {
			all = append(all, Action{Verb: "debug-on", Title: "Debug", Effect: "Replaces the pods by idle ones, in which t9k exec opens a shell. What runs now is ended.", Command: command("debug on")})
		}
		if n.Elastic != nil && (j.Status().Aggregate.Succeeded == 0 || j.Status().RunMode == batch.RunDebug) {
			all = append(all, Action{Verb: "scale", Title: "Scale", Effect: fmt.Sprintf("Changes the number of replicas, from %d to %d.", n.Elastic.Min, n.Elastic.Max),
				Command: fmt.Sprint(command("scale"), " ", n.Replicas()), Min: n.Elastic.Min, Max: n.Elastic.Max, Now: n.Replicas()})
		}
	}
	return append(all,
		Action{Verb: "rerun", Title: "Run again", Effect: "Creates a copy of the job under another name, with the same manifest.",
			Command: command("rerun")},
		Action{Verb: "delete", Title: "Delete", Effect: "Deletes the job with its pods and their logs. This cannot be undone.", Command: command("delete"), Dangerous: true})
}

// ActionOf returns the action with a verb; nil if there is no such action or if it is not possible now.
func ActionOf(j *observed.Job, verb string) *Action {
	for _, a := range Actions(j) {
		if a.Verb == verb {
			return &a
		}
	}
	return nil
}
