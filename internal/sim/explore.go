package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"tensorstack.dev/batch/internal/kinds"
)

// Exploration sets the bounds of Explore.
type Exploration struct {
	// Kind is the kind of the job that Job returns.
	Kind kinds.Kind
	Job  func() kinds.Object
	// Stage is the moment at which the exploration starts.
	Stage Stage
	// Depth is the largest number of steps.
	Depth int
	// Faults limits the number of faults of calls, deaths of operators and changes of the leader. Troubles limits the
	// number of evictions, deletions of pods by others, lost nodes, switches of the run mode and changes of the size.
	Faults, Troubles int
	// Workers is the number of states that are expanded concurrently.
	Workers int
}

// Stage is a moment in the life of a job.
type Stage string

// In every stage except Submitted, the leader is an operator that started when all pods were running.
const (
	// Submitted is when the job has just been submitted.
	Submitted Stage = "submitted"
	// Running is when all pods run.
	Running Stage = "running"
	// Restarting is when the first replica has failed and the operator has observed that.
	Restarting Stage = "restarting"
	// Ending is when the first replica has succeeded and the operator has observed that. The operator's caches show the
	// changes that it made to the pods, but not yet the status that it wrote.
	Ending Stage = "ending"
	// Losing is when the node of the first replica is lost, the pod is being deleted because of that, and the operator
	// has observed that.
	Losing Stage = "losing"
)

// Explored is the result of Explore.
type Explored struct {
	// States counts the different states, Steps the steps between them, and Calms the states from which the world was
	// run without faults until the job finished.
	States, Steps, Calms int
}

// Explore tries every order of everything that can happen to a job within the bounds, with the real reconciler. Its
// error lists the steps to the first wrong state. Of several equivalent states, it expands only one.
func Explore(x Exploration) (Explored, error) {
	e := &explorer{Exploration: x, seen: map[uint64]bool{}}
	if x.Stage != Submitted {
		e.running = e.run()
	}
	level := [][]step{nil}
	for depth := 0; depth < x.Depth && len(level) > 0 && e.err == nil; depth++ {
		level = e.expand(level)
	}
	return e.done, e.err
}

type explorer struct {
	Exploration
	// running is the world in which all pods run; nil for the stage Submitted. It is never modified.
	running *world
	mu      sync.Mutex
	seen    map[uint64]bool
	done    Explored
	err     error
}

// expand takes every step from every state of a level and returns the new states. A state is identified by the path of
// steps to it.
func (e *explorer) expand(level [][]step) [][]step {
	var next [][]step
	var wg sync.WaitGroup
	todo := make(chan []step)
	for range e.Workers {
		wg.Go(func() {
			for path := range todo {
				found := e.successors(path)
				e.mu.Lock()
				next = append(next, found...)
				e.mu.Unlock()
			}
		})
	}
	for _, path := range level {
		todo <- path
	}
	close(todo)
	wg.Wait()
	return next
}

// successors returns the new states one step from a state.
func (e *explorer) successors(path []step) [][]step {
	var found [][]step
	here := e.replay(path)
	for i, s := range here.choices() {
		if i > 0 { // the first step starts in the world that listed the choices
			here = e.replay(path)
		}
		next := e.try(here, path, s)
		found = append(found, next...)
		if s.verb != passes || here.faults == 0 {
			continue
		}
		for n := 1; n <= here.calls; n++ {
			for _, f := range []fault{callLost, answerLost, diesBefore, diesAfter, deposedByFresh, deposedByLate} {
				if f == diesBefore && n > 1 {
					continue // equal to dying after the previous call
				}
				found = append(found, e.try(e.replay(path), path, step{verb: passes, n: n, fault: f})...)
			}
		}
	}
	return found
}

// try takes one more step from the state at the end of a path, and returns the new path unless its state is known.
func (e *explorer) try(play *exploredWorld, path []step, s step) [][]step {
	play.take(s)
	sum := play.sum()
	path = append(slices.Clone(path), s)
	e.mu.Lock()
	known := e.seen[sum]
	e.seen[sum] = true
	e.done.Steps++
	if !known {
		e.done.States++
	}
	e.mu.Unlock()
	e.report(path, play)
	if known {
		return nil
	}
	if sum%calmEvery == 0 {
		calm := e.replay(path)
		calm.runToEnd()
		e.mu.Lock()
		e.done.Calms++
		e.mu.Unlock()
		e.report(path, calm)
	}
	return [][]step{path}
}

// calmEvery selects the states from which the world is run without faults until the job finishes: on average one in
// calmEvery.
const calmEvery = 16

// report records the first error that was found.
func (e *explorer) report(path []step, play *exploredWorld) {
	if len(play.w.errs) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = fmt.Errorf("after %s: %s", stepsText(path), strings.Join(play.w.errs, "; "))
	}
}
