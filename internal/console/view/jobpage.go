package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/observed"
)

// JobInput holds the objects from which the page of a job is computed.
type JobInput struct {
	Job *observed.Job
	// Pods are the job's pods, including deleted ones in their last observed state.
	Pods []*corev1.Pod
	// Attempts are archived attempts of the job. Their pods are not in Pods.
	Attempts []*archive.Attempt
	// Conditions are former conditions of the job, as far as they are known. They may include the current ones. Only
	// their Type, Reason and LastTransitionTime are used.
	Conditions []batch.JobCondition
	// Events are the events about the job, and Warnings the warnings about its pods; both are sorted, oldest first.
	Events, Warnings []*corev1.Event
	// Groups are the PodGroups of all jobs, and Waiting the pods that wait for the t9k-scheduler, as far as the user
	// may see them.
	Groups  []*scheduling.PodGroup
	Waiting []*corev1.Pod
	// Partial is true if Groups or Waiting may be incomplete, because the user may not list all of them.
	Partial bool
	// Taken reports whether a job of the same kind and namespace has the given name. JobOf needs it.
	Taken func(name string) bool
	// OpensBoards is true if the page can open the job's TensorBoard.
	OpensBoards bool
	Hidden      []Hidden
	Now         time.Time
}

// Fact is a property of a job.
type Fact struct {
	Name, Text, Href string
	// At is a time that is shown instead of Text; zero for other facts.
	At time.Time
}

// ReplicaRow is the row of a replica on the page of a job. Attempt counts from 0.
type ReplicaRow struct {
	Name, Phase, Node, Detail string
	Tone                      Tone
	Restarts, Attempt         int32
	// Created is when the current pod was created; zero if there is none or if neither the console nor the archive has
	// it.
	Created time.Time
	// Logs is the path of the replica's logs.
	Logs string
	// Decides is true if this replica alone determines the result of the job.
	Decides bool
}

// EventRow is an event about a job, or a group of equal warnings about its pods.
type EventRow struct {
	At              time.Time
	Reason, Message string
	// Pod is the pod of a warning or, in a group, the pod of the newest warning; empty for an event about the job.
	// Others is the number of other pods with the same warning. Count is how often the event or the warnings of the
	// group were seen; 0 if the number is not known.
	Pod    string
	Others int
	Count  int32
	Tone   Tone
}

// ConditionRow shows one condition on the page of a job.
type ConditionRow struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

// RoleRow is the row of a role. Counts is the number of its replicas in each phase, as text, and Total is their sum.
// Image and Command are those of the main container, with the arguments after the command.
type RoleRow struct {
	Role, Counts, Image, Command string
	Total                        int
	Restarts                     int32
}

// JobPage shows one job: its timeline, its roles and replicas, its actions, and the open tab.
type JobPage struct {
	JobRow
	Tab      string
	Tabs     []Link
	Facts    []Fact
	Timeline Timeline
	Roles    []RoleRow
	Replicas []ReplicaRow
	// More is the number of replicas that are not listed.
	More int
	// Earlier are ended attempts that Replicas does not show, those that ended last first. MoreEarlier is the number of
	// older attempts that are not listed.
	Earlier     []AttemptRow
	MoreEarlier int
	Events      []EventRow
	// MoreEvents is the number of older events that are not listed.
	MoreEvents int
	Conditions []ConditionRow
	// Waits lists what the job waits for.
	Waits   []observed.Wait
	Actions []Action
	// Board opens the job's TensorBoard; nil if the job has none, or if the page cannot open it.
	Board  *BoardAction `json:",omitempty"`
	Hidden []Hidden
}

// shownReplicas is the largest number of replicas that a page lists.
const shownReplicas = 200

var tabs = []string{"replicas", "explain", "events", "conditions", "manifest"}

// JobOf returns the page of a job with the named tab open. An unknown name opens the first tab.
func JobOf(in *JobInput, tab string) JobPage {
	if !slices.Contains(tabs, tab) {
		tab = tabs[0]
	}
	p := JobPage{JobRow: RowOf(in.Job), Tab: tab, Hidden: in.Hidden}
	lanes, pauses := in.lanesOf()
	p.Timeline = in.timeline(lanes, pauses)
	p.Tabs = tabLinks(p.Path, tabs, tab)
	p.Facts = in.facts()
	p.Waits = observed.Waits(in.Job, in.Pods, in.Groups, in.Waiting, in.Partial)
	p.Actions = Actions(in.Job)
	if in.OpensBoards {
		p.Board = BoardOf(in.Job)
	}
	for i := range p.Actions {
		if a := &p.Actions[i]; a.Verb == "rerun" {
			a.Name = CopyName(in.Job, in.Taken)
			a.Command += " --name " + a.Name
		}
	}
	in.fillReplicas(&p)
	in.fillEarlier(&p, lanes)
	in.fillEvents(&p)
	for _, c := range in.Job.Status().Conditions {
		p.Conditions = append(p.Conditions, ConditionRow{string(c.Type), string(c.Status), string(c.Reason), c.Message, c.LastTransitionTime.Time})
	}
	return p
}

// tabLinks returns the links to the tabs of a job's page, and to its logs. The first tab has the path of the page
// itself.
func tabLinks(path string, tabs []string, current string) []Link {
	var all []Link
	for _, t := range tabs {
		href := path + "?tab=" + t
		if t == tabs[0] {
			href = path
		}
		all = append(all, Link{Text: strings.ToUpper(t[:1]) + t[1:], Href: href, Current: t == current})
	}
	return append(all, Link{Text: "Logs", Href: path + "/logs"})
}

// ManifestForms returns the links to the two forms of a job's manifest. path is the path of the job's page. asPods is
// true if the page shows what the operator creates, and false if it shows the submitted manifest.
func ManifestForms(path string, asPods bool) []Link {
	return []Link{{"as submitted", path + "?tab=manifest", !asPods}, {"what the operator creates from it", path + "?tab=manifest&form=pods", asPods}}
}

// facts returns the properties of the job that have a value.
func (in *JobInput) facts() []Fact {
	j, s := in.Job, in.Job.Status()
	var all []Fact
	add := func(name, text, href string) {
		if text != "" {
			all = append(all, Fact{Name: name, Text: text, Href: href})
		}
	}
	add("Kind", j.Kind.Name, "")
	add("Namespace", j.GetNamespace(), JobFilter{Namespace: j.GetNamespace()}.Href())
	add("User", j.User(), JobFilter{User: j.User()}.Href())
	n, err := j.Normal()
	if err != nil {
		add("Invalid", err.Error(), "")
	}
	if queue := j.Queue(); queue != "" {
		add("Queue", queue, "/queues#queue-"+queue)
		add("Place", in.place(queue), "")
	}
	if s.RunMode != "" && s.RunMode != batch.RunImmediate {
		add("Mode", string(s.RunMode), "")
	}
	all = append(all, Fact{Name: "Created", At: j.GetCreationTimestamp().Time})
	if s.CompletionTime != nil {
		all = append(all, Fact{Name: "Ended", At: s.CompletionTime.Time})
	}
	if n != nil {
		if n.Elastic != nil {
			add("Elastic", fmt.Sprintf("%d to %d replicas", n.Elastic.Min, n.Elastic.Max), "")
		}
		if n.RestartLimit != nil {
			add("Restarts", fmt.Sprintf("%d of %d", s.BackoffCount, *n.RestartLimit), "")
		}
		if n.Deadline != nil {
			add("Deadline", Age(*n.Deadline), "")
		}
		if n.Rendezvous != nil {
			add("Rendezvous", n.Rendezvous.Endpoint, "")
		}
		if n.TTL != nil {
			add("Deleted", Age(*n.TTL)+" after its end", "")
		}
		add("Decided by", observed.Decides(n), "")
	}
	add(boardFact, in.boardText(), "")
	return all
}

// place returns as text the position of the job's group among the groups and single pods that wait in the queue, and
// the names of those ahead of it; empty if the group does not wait.
func (in *JobInput) place(queue string) string {
	return observed.Place(in.Job.GetNamespace()+"/"+in.Job.GetName(), observed.Waiters(queue, in.Groups, in.Waiting), in.Partial)
}

// fillReplicas lists the roles and the replicas, and sets More. If the page cannot list all replicas, those that need
// attention come first.
func (in *JobInput) fillReplicas(p *JobPage) {
	s := in.Job.Status()
	normal, err := in.Job.Normal()
	if err != nil {
		normal = in.Job.Kind.Convert(in.Job.Object)
	}
	created := map[string]time.Time{}
	for _, pod := range in.Pods {
		created[string(pod.UID)] = pod.CreationTimestamp.Time
	}
	for _, a := range in.Attempts {
		created[a.UID] = a.Created
	}
	decides, wanted := observed.Decides(normal), 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		count, sum := observed.CountPhases(t)
		wanted += sum
		role := RoleRow{Role: t.Type, Total: sum, Restarts: t.RestartCount}
		for _, phase := range observed.PhaseOrder {
			if n := count[phase]; n > 0 {
				role.Counts = strings.TrimPrefix(fmt.Sprintf("%s, %d %s", role.Counts, n, strings.ToLower(string(phase))), ", ")
			}
		}
		if i < len(normal.Roles) && normal.Roles[i].Main < len(normal.Roles[i].Template.Spec.Containers) {
			main := &normal.Roles[i].Template.Spec.Containers[normal.Roles[i].Main]
			role.Image, role.Command = main.Image, observed.OneLine(strings.Join(append(slices.Clone(main.Command), main.Args...), " "))
		}
		p.Roles = append(p.Roles, role)
		for k := range t.Replicas {
			r := &t.Replicas[k]
			name := fmt.Sprintf("%s-%d", t.Type, observed.RankOf(r.Name))
			attempt := r.Attempt
			if r.Phase == batch.ReplicaDeleted && r.UID == "" && attempt > 0 { // the status already counts the next pod
				attempt--
			}
			p.Replicas = append(p.Replicas, ReplicaRow{Name: name, Phase: string(r.Phase), Tone: toneOf(string(r.Phase)), Node: r.NodeName, Restarts: r.RestartCount,
				Attempt: attempt, Detail: observed.Detail(r), Created: created[r.UID], Logs: p.Path + "/logs?replica=" + name, Decides: name == decides})
		}
	}
	rank := func(r *ReplicaRow) int { return slices.Index(observed.PhaseOrder, batch.ReplicaPhase(r.Phase)) }
	if len(p.Replicas) > shownReplicas || wanted > len(p.Replicas) {
		slices.SortStableFunc(p.Replicas, func(a, b ReplicaRow) int {
			return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.Restarts, a.Restarts))
		})
		p.Replicas = p.Replicas[:min(len(p.Replicas), shownReplicas)]
	}
	p.More = wanted - len(p.Replicas)
}
