package view

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/testing/golden"
)

// archived returns the archived records of the job in a file. change, if not nil, modifies the records.
func archived(t *testing.T, file string, change func(*archive.JobDetails)) *archive.JobDetails {
	t.Helper()
	return archivedOf(t, world(t, file), change)
}

// archivedOf returns the archived records of a job. It adds to the pods and events of in what the archive needs.
// change, if not nil, modifies the records.
func archivedOf(t *testing.T, in *JobInput, change func(*archive.JobDetails)) *archive.JobDetails {
	t.Helper()
	encode := func(o any) json.RawMessage {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	s := in.Job.Status()
	d := &archive.JobDetails{Job: archive.Job{UID: string(in.Job.GetUID()), Kind: in.Job.Kind.Name, Namespace: in.Job.GetNamespace(), Name: in.Job.GetName(), Phase: string(s.Phase),
		Created: in.Job.GetCreationTimestamp().UTC(), Replicas: 2, Restarts: s.Restarts, Object: encode(in.Job.Object)}}
	for _, c := range s.Conditions {
		d.Conditions = append(d.Conditions, archive.Condition{Type: string(c.Type), Status: string(c.Status), Reason: string(c.Reason), Message: c.Message, Since: c.LastTransitionTime.UTC()})
	}
	for _, p := range in.Pods {
		yes := true
		p.ResourceVersion, p.OwnerReferences = "1", []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: in.Job.Kind.Name, Name: in.Job.GetName(), UID: in.Job.GetUID(), Controller: &yes}}
		p.Labels[batch.LabelJobName], p.Labels[batch.LabelJobKind] = in.Job.GetName(), in.Job.Kind.Name
		a, err := archive.AttemptOf(p)
		if err != nil || a == nil {
			t.Fatalf("pod %s is attempt %v, %v", p.Name, a, err)
		}
		d.Attempts = append(d.Attempts, archive.AttemptDetails{Attempt: *a, Pod: a.Pod})
	}
	for _, e := range in.Events {
		e.InvolvedObject.UID = types.UID(d.UID)
		d.Events = append(d.Events, encode(e))
	}
	if change != nil {
		change(d)
	}
	return d
}

func TestHistoryJobPages(t *testing.T) {
	later := noon.Add(time.Hour)
	for name, change := range map[string]func(*archive.JobDetails){
		"still-there": nil,
		"deleted": func(d *archive.JobDetails) {
			d.Gone = noon.Add(150 * time.Second)
			a := &d.Attempts[0].Attempt
			a.Outcome, a.Ended = archive.Stopped, d.Gone
		},
		"unseen": func(d *archive.JobDetails) {
			d.Gone = noon.Add(10 * time.Minute)
			a := &d.Attempts[0].Attempt
			a.Outcome, a.Ended = archive.Lost, noon.Add(160*time.Second)
			a = &d.Attempts[1].Attempt
			a.Outcome, a.Cause, a.ExitCode = archive.Evicted, "PreemptionByScheduler", nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := HistoryJob(archived(t, "testdata/restarting.yaml", change), "", later)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, "testdata/history-"+name+".golden", asYAML(t, p))
		})
	}
}

func TestHistoryShowsOutcomes(t *testing.T) {
	end := noon.Add(time.Hour)
	list := &archive.JobList{Next: "5.c", More: true, Jobs: []*archive.Job{
		{UID: "a", Kind: "GenericJob", Namespace: "ns", Name: "done", Phase: "Succeeded", Created: noon, Ended: end, Gone: end.Add(time.Minute), Replicas: 3},
		{UID: "b", Kind: "PyTorchTrainingJob", Namespace: "ns", Name: "cut", Phase: "Running", Why: "1 of 2 replicas run.", Created: noon, Gone: end, Replicas: 2, Restarts: 1, Queue: "q", User: "mei"},
		{UID: "c/d", Kind: "GenericJob", Namespace: "ns", Name: "runs", Phase: "Running", Created: noon},
	}}
	f := ParseHistoryFilter(url.Values{"q": {" mn "}, "user": {"mei"}, "from": {"2026-01-01"}, "to": {"2026-01-31"}, "gone": {"1"}, "after": {"7.x"}})
	golden.Compare(t, "testdata/history.golden", asYAML(t, History(f, list, "")))
}

func TestHistoryFilterBecomesAQuery(t *testing.T) {
	for query, c := range map[string]struct {
		want    archive.JobQuery
		problem string
	}{
		"": {want: archive.JobQuery{Limit: HistorySize}},
		"q=a&ns=b&queue=c&user=d&outcome=Deleted&gone=1": {want: archive.JobQuery{Text: "a", Namespace: "b", Queue: "c", User: "d", Outcome: "Deleted", Gone: true, Limit: HistorySize}},
		"from=2026-01-31&to=2026-01-31":                  {want: archive.JobQuery{From: noon.AddDate(0, 0, 30).Truncate(day), To: noon.AddDate(0, 0, 31).Truncate(day), Limit: HistorySize}},
		"from=2026-01-01T14:00:00%2B02:00":               {want: archive.JobQuery{From: noon, Limit: HistorySize}},
		"after=1767268800000.u":                          {want: archive.JobQuery{After: archive.Cursor{Created: noon, UID: "u"}, Limit: HistorySize}},
		"from=yesterday":                                 {want: archive.JobQuery{Limit: HistorySize}, problem: "A time cannot be read"},
		"after=here":                                     {want: archive.JobQuery{Limit: HistorySize}, problem: "names no place"},
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		f := ParseHistoryFilter(v)
		got, problem := f.Query()
		if got != c.want || !strings.Contains(problem, c.problem) || (problem == "") != (c.problem == "") {
			t.Errorf("%q: %+v, %q", query, got, problem)
		}
		if again, err := url.Parse(f.Href()); err != nil || ParseHistoryFilter(again.Query()) != f {
			t.Errorf("%q: the path of the filter is %s, %v", query, f.Href(), err)
		}
	}
}

func TestUsagePageShowsSumsByKey(t *testing.T) {
	now := noon.Add(36*time.Hour + 20*time.Minute)
	f := ParseUsageFilter(url.Values{"by": {"user"}, "from": {"2026-01-01"}})
	q, problem := f.Query(now)
	sum := func(step int, key, resource string, hours float64) archive.Usage {
		from := q.From.Add(time.Duration(step) * q.Step)
		return archive.Usage{From: from, To: from.Add(q.Step), Key: key, Resource: resource, Hours: hours}
	}
	all := []archive.Usage{sum(0, "mei", "nvidia.com/gpu", 8), sum(0, "", "nvidia.com/gpu", 1.5), sum(1, "mei", "nvidia.com/gpu", 24), sum(1, "mei", "cpu", 1000), sum(47, "jonas", "nvidia.com/gpu", 1234.5), sum(3, "mei", "example.com/fpga", 2)}
	golden.Compare(t, "testdata/usage.golden", asYAML(t, Usage(f, &q, all, problem, now)))
}

func TestUsageFilterBecomesAQuery(t *testing.T) {
	now := time.Date(2026, 11, 23, 15, 30, 5, 6, time.UTC)
	midnight := now.Truncate(day)
	for query, c := range map[string]struct {
		from, to time.Time
		step     time.Duration
		problem  string
	}{
		"":                                {midnight.AddDate(0, 0, -29), now.Truncate(time.Second), day, ""},
		"from=2026-11-23":                 {midnight, now.Truncate(time.Second), time.Hour, ""},
		"from=2026-11-22&to=2026-11-22":   {midnight.AddDate(0, 0, -1), midnight, time.Hour, ""},
		"to=2026-11-22":                   {midnight.AddDate(0, 0, -30), midnight, day, ""},
		"from=2026-01-05":                 {time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), now.Truncate(time.Second), 7 * day, ""},
		"from=2027-01-01":                 {now.Truncate(time.Second).Add(-day).Truncate(time.Hour), now.Truncate(time.Second), time.Hour, "ends before it begins"},
		"from=1970-01-01":                 {now.Truncate(time.Second).Add(-300 * 7 * day).Truncate(day), now.Truncate(time.Second), 7 * day, "too long"},
		"from=never":                      {midnight.AddDate(0, 0, -29), now.Truncate(time.Second), day, "cannot be read"},
		"from=2026-11-23T13:10:00Z&by=no": {midnight.Add(13 * time.Hour), now.Truncate(time.Second), time.Hour, ""},
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		q, problem := ParseUsageFilter(v).Query(now)
		if !q.From.Equal(c.from) || !q.To.Equal(c.to) || q.Step != c.step || !strings.Contains(problem, c.problem) || (problem == "") != (c.problem == "") {
			t.Errorf("%q: %s to %s by %s, %q", query, q.From, q.To, q.Step, problem)
		}
		if err := q.Check(); err != nil {
			t.Errorf("%q: %v", query, err)
		}
	}
}

// TestRemarkOfALogWithoutTimes verifies that the remark about a log comes before its lines even if no line has a
// timestamp.
func TestRemarkOfALogWithoutTimes(t *testing.T) {
	list := &archive.LogList{Logs: []archive.LogText{{Role: "w", Container: "main", Cut: true, Text: "the end of a line\n"}}}
	var all []string
	for _, l := range HistoryLines(list, &ArchivedLogs{}) {
		all = append(all, l.Line.Text)
	}
	if want := []string{"--- the archive has only the end of this log ---", "the end of a line"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

func TestHistoryLinesAreInOrder(t *testing.T) {
	list := &archive.LogList{Logs: []archive.LogText{
		{Role: "w", Rank: 0, Container: "main", Cut: true, Text: "2026-01-01T12:00:01Z first\nno time\n2026-01-01T12:00:04Z Traceback (most recent call last):\n"},
		{Role: "w", Rank: 0, Attempt: 1, Container: "main", Text: "2026-01-01T12:00:09.5Z again\n"},
		{Role: "w", Rank: 1, Container: "main", Text: "2026-01-01T12:00:02Z other\n"},
		{Role: "w", Rank: 1, Container: "side", Text: ""},
	}}
	show := func(attempt int) string {
		var all []string
		for _, l := range HistoryLines(list, &ArchivedLogs{Attempt: attempt}) {
			mark := ""
			if l.Line.Error {
				mark = "!"
			}
			all = append(all, mark+l.Line.Replica+": "+l.Line.Text)
		}
		return strings.Join(all, "\n")
	}
	want := "w-0: --- the archive has only the end of this log ---\nw-0: first\nw-0: no time\nw-1/main: other\n!w-0: Traceback (most recent call last):\nw-0#2: again" // a container without output has no lines
	if got := show(0); got != want {
		t.Errorf("%s\n\nwant\n%s", got, want)
	}
	if got := show(2); got != ": again" { // the lines of a single log have no name
		t.Errorf("the second attempts: %s", got)
	}
	p := HistoryLogs(&archive.JobDetails{Job: archive.Job{UID: "u", Kind: "GenericJob", Namespace: "ns", Name: "j"}}, &archive.LogList{}, ArchivedLogs{Replica: "w-0"})
	if !strings.HasPrefix(p.State, "The archive has no such log.") || p.Command != "t9k history logs -n ns genericjob/j --uid u -r w-0" {
		t.Errorf("%q, %q", p.State, p.Command)
	}
}

// TestArchivedLogsOfAReplicaThatWasScaledAwayAndBack verifies that a link to one of two attempts with the same number
// selects only the log of this attempt, and that remarks tell the logs apart when a page shows both. It also verifies
// that the page ignores the UID of a pod when the user selects another attempt.
func TestArchivedLogsOfAReplicaThatWasScaledAwayAndBack(t *testing.T) {
	l := lives["scaled"]()
	d := archivedOf(t, l.in, nil)
	list := &archive.LogList{}
	for _, a := range d.Attempts {
		if a.Rank == 1 {
			list.Logs = append(list.Logs, archive.LogText{UID: a.UID, Created: a.Created, Role: "w", Rank: 1, Attempt: a.Number, Container: "main",
				Text: a.Created.Format(time.RFC3339) + " of " + a.UID + "\n"})
		}
	}
	p, err := HistoryJob(d, "", minute(500).Time)
	if err != nil {
		t.Fatal(err)
	}
	followed := map[string]bool{}
	for _, row := range p.Attempts {
		address, err := url.Parse(row.Logs)
		if err != nil {
			t.Fatal(err)
		}
		q := address.Query()
		if twice := row.Replica == "w-1" && row.Number == 1; q.Has("pod") != twice {
			t.Errorf("%s has a pod: %t", row.Logs, q.Has("pod"))
		}
		if row.Replica == "w-1" {
			s := ArchivedLogs{Replica: "w-1", Attempt: row.Number, Pod: q.Get("pod")}
			page := HistoryLogs(d, list, s)
			if len(page.Lines) != 1 || page.ArchivedLogs != s {
				t.Fatalf("%s leads to %+v of %+v", row.Logs, page.Lines, page.ArchivedLogs)
			}
			followed[page.Lines[0].Text] = true
		}
	}
	if len(followed) != 3 {
		t.Errorf("the links lead to %v", followed)
	}
	both := HistoryLogs(d, list, ArchivedLogs{Replica: "w-1", Attempt: 1, Pod: ""})
	if len(both.Lines) != 4 || both.Lines[0].Text != "--- attempt 1, created at 2026-01-01T12:00:00Z ---" || both.Lines[2].Text != "--- attempt 1, created at 2026-01-01T14:30:00Z ---" {
		t.Errorf("both logs are %+v", both.Lines)
	}
	if other := HistoryLogs(d, list, ArchivedLogs{Replica: "w-1", Attempt: 2, Pod: list.Logs[0].UID}); other.Pod != "" || len(other.Lines) != 1 {
		t.Errorf("another attempt: %+v, %+v", other.ArchivedLogs, other.Lines)
	}
}

func TestAxesEndAtRoundNumbers(t *testing.T) {
	for most, want := range map[float64][2]float64{0: {1, 1}, 1: {1, 0.2}, 3: {3, 1}, 9.2: {10, 2}, 17: {20, 5}, 100: {100, 20}, 1234.5: {1250, 250}, 0.004: {0.004, 0.001}} {
		if top, line := ceiling(most); top < most || diff(top, want[0]) || diff(line, want[1]) {
			t.Errorf("%v: up to %v by %v, want %v", most, top, line, want)
		}
	}
	for h, want := range map[float64]string{0: "0", 0.01234: "0.0123", 9.999: "10", 12.34: "12.3", 500: "500", 1234.5: "1,234.5", 1234567: "1,234,567"} {
		if got := Hours(h); got != want {
			t.Errorf("%v: %q, want %q", h, got, want)
		}
	}
}

func diff(a, b float64) bool { return a-b > 1e-9 || b-a > 1e-9 }

func TestTicksOfAnyTimeAreFew(t *testing.T) {
	for _, begin := range []time.Time{{}, noon.AddDate(-200, 0, 0), noon.Add(-time.Hour), noon} {
		if n := len(ticks(scale{begin, noon})); n > 6 {
			t.Errorf("%d marks from %s to %s", n, begin, noon)
		}
	}
}
