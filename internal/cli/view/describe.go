package view

import (
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// Description is the input of the full description of a job.
type Description struct {
	Job
	Meta metav1.Object
	Ages Ages
	// Invalid is the reason why the spec cannot be converted; empty if it can.
	Invalid string
	// Place is the job's place among the waiting groups of its queue; empty if it does not wait or if the place is not
	// known.
	Place string
	// TensorBoard is the state of the job's own TensorBoard; nil if it has none.
	TensorBoard *batch.DependentStatus
	// Gone is the time at which the recorder found the job deleted; zero while the job exists.
	Gone time.Time
	// Events are the events about the job and about its pods that do not run.
	Events []corev1.Event
}

// describedReplicas is the largest number of replicas that a description lists.
const describedReplicas = 50

// Lines renders the description.
func (d *Description) Lines(now time.Time, st Style, width int) []string {
	lines := d.head(now).Lines(st, "", width)
	lines = append(lines, section("Conditions", d.conditions(now), st, width)...)
	if d.Normal != nil {
		lines = append(lines, section("Roles", d.roles(), st, width)...)
	}
	if !d.cutOff() {
		replicas, more := d.replicas(now)
		lines = append(lines, section("Replicas", replicas, st, width)...)
		if more > 0 {
			lines = append(lines, st.Paint(Dim, fmt.Sprintf("  … and %d more", more)))
		}
	}
	return append(lines, section("Events", d.events(now), st, width)...)
}

// cutOff reports whether the job was deleted before it finished. Its archived status then still shows it as unfinished.
func (d *Description) cutOff() bool { return !d.Gone.IsZero() && d.Status.CompletionTime == nil }

func section(title string, t Table, st Style, width int) []string {
	if len(t.Rows) == 0 {
		return []string{"", st.Paint(Bold, title+":") + " none"}
	}
	return append([]string{"", st.Paint(Bold, title+":")}, t.Lines(st, "  ", width)...)
}

func (d *Description) head(now time.Time) Table {
	t := Table{Text: true}
	add := func(name, value string, c Colour) {
		if value != "" {
			t.Rows = append(t.Rows, []Cell{{name + ":", Plain}, {value, c}})
		}
	}
	s := d.Status
	add("Name", d.Name, Plain)
	add("Namespace", d.Namespace, Plain)
	add("Kind", d.Kind, Plain)
	add("Labels", pairs(d.Meta.GetLabels()), Plain)
	add("Created", at(d.Created, now), Plain)
	until := now
	if d.cutOff() {
		until = d.Gone
		add("Phase", "Deleted, was "+orDash(string(s.Phase)), Bad)
	} else {
		add("Phase", orDash(string(s.Phase)), phaseColour(string(s.Phase)))
		add("Why", observed.Explain(s), Plain)
	}
	add("Invalid", d.Invalid, Bad)
	if d.Meta.GetDeletionTimestamp() != nil {
		add("Deleted", at(d.Meta.GetDeletionTimestamp().Time, now)+", waiting for its pods to end", Wait)
	}
	if !d.cutOff() {
		add("Running", ready(s), Plain)
	}
	if d.Normal != nil && d.Normal.Elastic != nil {
		add("Replicas", size(d.Normal), Plain)
	}
	restarts, _ := d.restartCount()
	add("Restarts", restarts, Plain)
	if s.StartTime != nil {
		add("Started", at(s.StartTime.Time, now), Plain)
	}
	if s.CompletionTime != nil {
		add("Finished", at(s.CompletionTime.Time, now), Plain)
	}
	if !d.Gone.IsZero() {
		add("Gone", at(d.Gone, now), Plain)
	}
	waited, ran := d.times(until)
	add("Waited", waited, Plain)
	add("Ran", ran, Plain)
	add("Run mode", string(s.RunMode), Plain)
	if n := d.Normal; n != nil {
		add("Decided by", observed.Decides(n), Plain)
		add("Rendezvous", rendezvous(n), Plain)
		add("Deadline", d.deadline(now), Plain)
		add("Clean-up", string(n.CleanUp), Plain)
		if n.TTL != nil {
			add("Deleted after", n.TTL.String()+" from its end", Plain)
		}
		add("Service", d.service(), Plain)
		if n.Gang != nil {
			add("Queue", fmt.Sprintf("%s, priority %d", n.Gang.Queue, n.Gang.Priority), Plain)
			add("Place", d.Place, Plain)
		}
	}
	board, colour := d.board()
	add("TensorBoard", board, colour)
	return t
}

// board returns the state of the job's TensorBoard as text; empty if the job has none.
func (d *Description) board() (string, Colour) {
	b := d.TensorBoard
	if b == nil {
		return "", Plain
	}
	colour := Wait
	switch {
	case b.Ready:
		colour = Good
	case b.Type == corev1.EventTypeWarning:
		colour = Bad
	}
	return observed.BoardText(d.Name, b), colour
}

func (d *Description) service() string {
	if d.Normal.Service == nil {
		return ""
	}
	var ports []string
	for _, p := range d.Normal.Service.Ports {
		ports = append(ports, strings.TrimPrefix(fmt.Sprintf("%s %d", p.Name, p.Port), " "))
	}
	return strings.Join(append([]string{d.Name}, ports...), ", ")
}

// at returns a time, and how long ago it was, as text.
func at(t, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), age(t, now))
}

func pairs(m map[string]string) string {
	var all []string
	for k, v := range m {
		all = append(all, k+"="+v)
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}

func (d *Description) conditions(now time.Time) Table {
	t := Table{Header: []string{"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}, Text: true}
	for _, c := range d.Status.Conditions {
		t.Rows = append(t.Rows, Plainly(string(c.Type), string(c.Status), age(c.LastTransitionTime.Time, now), string(c.Reason), observed.OneLine(c.Message)))
	}
	return t
}

func (d *Description) roles() Table {
	t := Table{Header: []string{"ROLE", "REPLICAS", "RESTARTS", "RESTART POLICY", "IMAGE", "COMMAND"}, Text: true}
	restarts := map[string]int32{}
	for _, task := range d.Status.Tasks {
		restarts[task.Type] = task.RestartCount
	}
	for i := range d.Normal.Roles {
		r := &d.Normal.Roles[i]
		main := &r.Template.Spec.Containers[r.Main]
		command := cut(observed.OneLine(strings.Join(append(append([]string{}, main.Command...), main.Args...), " ")), 200)
		t.Rows = append(t.Rows, Plainly(r.Type, fmt.Sprint(r.Replicas), fmt.Sprint(restarts[r.Type]), restartPolicy(d.Normal, r.Restart), orDash(main.Image), orDash(command)))
	}
	return t
}

// replicas returns a table of at most describedReplicas replicas. If the table cannot show all replicas, it shows the
// most urgent ones. more is the number of replicas that are left out.
func (d *Description) replicas(now time.Time) (t Table, more int) {
	all := listed(d.Status)
	want := int(observed.Total(d.Status))
	if want > describedReplicas || want > len(all) {
		all = byUrgency(all)
	}
	shown := all[:min(len(all), describedReplicas)]
	if len(shown) == 0 {
		return Table{}, 0
	}
	t.Header, t.Text = replicaHeader, true
	for i := range shown {
		t.Rows = append(t.Rows, shown[i].row(d.Ages, now))
	}
	return t, want - len(shown)
}

func (d *Description) events(now time.Time) Table {
	t := Table{Header: []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}, Text: true}
	for i := range d.Events {
		e := &d.Events[i]
		seen := age(observed.EventTime(e), now)
		if n := observed.EventCount(e); n > 1 {
			seen = fmt.Sprintf("%s (x%d)", seen, n)
		}
		c := Plain
		if e.Type == corev1.EventTypeWarning {
			c = Wait
		}
		object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		t.Rows = append(t.Rows, []Cell{{Text: seen}, {e.Type, c}, {Text: e.Reason}, {Text: object}, {Text: observed.OneLine(e.Message)}})
	}
	return t
}

// Troubled returns the names of at most n pods of replicas that should run and do not, the worst first.
func Troubled(s *batch.JobStatus, n int) []string {
	var names []string
	for _, r := range byUrgency(listed(s)) {
		switch r.Phase {
		case batch.ReplicaRunning, batch.ReplicaSucceeded, batch.ReplicaDeleted:
			continue
		}
		if len(names) == n {
			break
		}
		names = append(names, r.Name)
	}
	return names
}
