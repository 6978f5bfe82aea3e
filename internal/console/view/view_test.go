package view

import (
	"embed"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/testing/golden"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

//go:embed testdata/*.yaml
var files embed.FS

// world returns the JobInput with the objects in a file. Its Now is three minutes after noon.
func world(t *testing.T, file string) *JobInput {
	t.Helper()
	data, err := files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := &JobInput{Now: noon.Add(3 * time.Minute), Taken: func(string) bool { return false }}
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		switch meta.Kind {
		case "Pod":
			in.Pods = append(in.Pods, read[corev1.Pod](t, doc))
		case "Event":
			in.Events = append(in.Events, read[corev1.Event](t, doc))
		default:
			kind, err := kinds.ByName(meta.Kind)
			if err != nil {
				t.Fatal(err)
			}
			object := kind.New()
			if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
				t.Fatal(err)
			}
			in.Job = &observed.Job{Kind: &kind, Object: object}
		}
	}
	return in
}

func read[T any](t *testing.T, doc string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// asYAML returns a view model as YAML for a golden file.
func asYAML(t *testing.T, model any) string {
	t.Helper()
	data, err := json.Marshal(model)
	if err == nil {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestJobPages(t *testing.T) {
	for _, name := range []string{"restarting", "seen-late", "paused"} {
		t.Run(name, func(t *testing.T) {
			p := JobOf(world(t, "testdata/"+name+".yaml"), "")
			golden.Compare(t, "testdata/"+name+".golden", asYAML(t, p))
		})
	}
}

func rows() []JobRow {
	var all []JobRow
	add := func(name, namespace, phase, queue string, age time.Duration, labels map[string]string) {
		all = append(all, JobRow{UID: name, Name: name, Namespace: namespace, Kind: "GenericJob", Phase: phase, Queue: queue, Created: noon.Add(-age), Labels: labels})
	}
	add("a", "blue", "Running", "q", time.Hour, map[string]string{"team": "vision"})
	add("b", "blue", "Failed", "", time.Minute, nil)
	add("c", "red", "Pending", "q", time.Second, nil)
	add("d", "red", "Running", "p", 2*time.Hour, map[string]string{"team": "text"})
	return all
}

func names(p JobsPage) string {
	var all []string
	for i := range p.Rows {
		all = append(all, p.Rows[i].Name)
	}
	return strings.Join(all, "")
}

func TestJobsAreFilteredAndSorted(t *testing.T) {
	for query, want := range map[string]string{
		"":                           "cbad",
		"sort=-age":                  "dabc",
		"sort=name":                  "abcd",
		"sort=-name":                 "dcba",
		"sort=phase":                 "bcad",
		"sort=nonsense":              "cbad",
		"ns=red":                     "cd",
		"phase=Running":              "ad",
		"phase=Running&phase=Failed": "bad",
		"queue=q":                    "ca",
		"label=team":                 "ad",
		"label=team%3Dvision":        "a",
		"q=RED":                      "cd",
		"q=nobody":                   "",
		"label=%3D%3D%3D":            "",
		"page=99":                    "cbad",
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(Jobs(rows(), ParseJobFilter(v), nil, noon)); got != want {
			t.Errorf("?%s: %q, want %q", query, got, want)
		}
	}
}

func TestFilterRoundTripsThroughTheURL(t *testing.T) {
	const query = "kind=GenericJob&label=a+in+%28b%29&ns=x&page=3&phase=Failed&phase=New&q=z&queue=q&sort=-age&user=u"
	v, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	if got := ParseJobFilter(v).Href(); got != "/?"+query {
		t.Errorf("%s became %s", query, got)
	}
}

func TestCountsIgnoreThePhaseAndNothingElse(t *testing.T) {
	p := Jobs(rows(), JobFilter{Phases: []string{"Failed"}, Namespace: "blue"}, nil, noon)
	var got []string
	for _, c := range p.Counts {
		got = append(got, strings.TrimSpace(c.Text)+"="+string(rune('0'+c.Count)))
	}
	if want := []string{"All=2", "Failed=1", "Running=1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPagesOfManyJobs(t *testing.T) {
	var many []JobRow
	for range 2*PageSize + 1 {
		many = append(many, JobRow{Phase: "Running", Created: noon})
	}
	p := Jobs(many, JobFilter{Page: 2}, nil, noon)
	if len(p.Rows) != PageSize || p.Prev != "/" || p.Next != "/?page=3" || p.Range() != "201–400 of 401 jobs" {
		t.Errorf("%d rows, previous %q, next %q, %q", len(p.Rows), p.Prev, p.Next, p.Range())
	}
}

// BenchmarkJobs measures the list of 10,000 jobs.
func BenchmarkJobs(b *testing.B) {
	var many []JobRow
	for i := range 10_000 {
		many = append(many, JobRow{UID: strconv.Itoa(i), Name: "job-" + strconv.Itoa(i), Namespace: "ns", Phase: "Running", Created: noon.Add(time.Duration(i*7919%10_000) * time.Second)})
	}
	for b.Loop() {
		Jobs(many, JobFilter{Page: 1}, nil, noon)
	}
}

// manyReplicas returns the input of a job with n replicas. The replicas for which failing returns true have failed, and
// all others run.
func manyReplicas(n int, failing func(rank int) bool) *JobInput {
	replicas := int32(n)
	job := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "big", CreationTimestamp: at(0)},
		Spec: batch.GenericJobSpec{ReplicaSpecs: []batch.ReplicaSpec{{Type: "w", Replicas: &replicas}}}}
	job.Status.Tasks = []batch.Tasks{{Type: "w"}}
	in := &JobInput{Job: &observed.Job{Kind: kindtest.Named("GenericJob"), Object: job}, Now: noon.Add(100 * time.Second)}
	for rank := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: podName(rank), CreationTimestamp: at(0),
			Labels: map[string]string{batch.LabelReplicaType: "w", batch.LabelReplicaRank: resource.NewQuantity(int64(rank), resource.DecimalSI).String()}}}
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(10)}}}}
		if failing(rank) {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: at(10), FinishedAt: at(50)}}
		}
		in.Pods = append(in.Pods, p)
	}
	return in
}

// podName returns the name of the pod of a rank.
func podName(rank int) string {
	return "big-w-" + resource.NewQuantity(int64(rank), resource.DecimalSI).String()
}

func TestLanesOfManyReplicasAreGrouped(t *testing.T) {
	timeline := manyReplicas(1000, func(rank int) bool { return rank < 3 }).wholeTimeline()
	if len(timeline.Lanes) != 50 || timeline.Grouped != 20 {
		t.Fatalf("%d lanes of %d replicas", len(timeline.Lanes), timeline.Grouped)
	}
	first, second := timeline.Lanes[0], timeline.Lanes[1]
	if first.Label != "w-0…19" || !slices.ContainsFunc(first.Segments, func(s Segment) bool { return s.State == "failed" }) {
		t.Errorf("the lane with three failed replicas: %+v", first)
	}
	if slices.ContainsFunc(second.Segments, func(s Segment) bool { return s.State == "failed" }) {
		t.Errorf("a lane without failed replicas: %+v", second)
	}
}

// TestHeatMapShowsASingleFailedReplica verifies that a heat map of 10,000 replicas shows a single failed replica, and
// that the shade depends on the share of the replicas that have the shown state. It also verifies that 1,000 replicas
// have no heat map.
func TestHeatMapShowsASingleFailedReplica(t *testing.T) {
	timeline := manyReplicas(10_000, func(rank int) bool { return rank == 7 || rank >= 125 && rank < 250 }).wholeTimeline()
	if !timeline.Heat || len(timeline.Lanes) != heatRows || timeline.Grouped != 125 {
		t.Fatalf("heat map %v with %d rows of %d replicas", timeline.Heat, len(timeline.Lanes), timeline.Grouped)
	}
	for i, want := range []Segment{{State: "failed", Heat: 1}, {State: "failed", Heat: 4}, {State: "running", Heat: 4}} {
		lane := timeline.Lanes[i]
		if !slices.ContainsFunc(lane.Segments, func(s Segment) bool { return s.State == want.State && s.Heat == want.Heat }) {
			t.Errorf("%s has no segment that is %s with shade %d: %+v", lane.Label, want.State, want.Heat, lane.Segments)
		}
	}
	if manyReplicas(1000, func(int) bool { return false }).wholeTimeline().Heat {
		t.Error("1,000 replicas are a heat map")
	}
}

func TestAmountsAreNotRoundedToZero(t *testing.T) {
	for _, c := range []struct {
		name       corev1.ResourceName
		text, want string
	}{
		{corev1.ResourceMemory, "1536Mi", "1.5 Gi"}, {corev1.ResourceMemory, "10Mi", "10Mi"}, {corev1.ResourceMemory, "-10Mi", "-10Mi"}, {corev1.ResourceMemory, "0", "0 Gi"},
		{corev1.ResourceCPU, "1500m", "1.5"}, {corev1.ResourceCPU, "100", "100"}, {corev1.ResourceCPU, "1m", "1m"}, {corev1.ResourceCPU, "0", "0"},
		{"nvidia.com/gpu", "8", "8"},
	} {
		if got := amount(c.name, resource.MustParse(c.text)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.text, c.name, got, c.want)
		}
	}
}

func TestQueuesShowRunningAndWaitingGroups(t *testing.T) {
	quota := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	low := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Spec: scheduling.QueueSpec{Closed: true, Quota: scheduling.QueueQuota{Requests: quota("4")}},
		Status: scheduling.QueueStatus{Allocated: quota("3800m")}}
	high := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Spec: scheduling.QueueSpec{Priority: 9, MaxDuration: "1d"}}
	group := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "runs",
		OwnerReferences: []metav1.OwnerReference{{Kind: "PyTorchTrainingJob", Name: "runs", Controller: new(true)}}}, Spec: scheduling.PodGroupSpec{Queue: "low", MinMember: 2},
		Status: scheduling.PodGroupStatus{Running: 2, Allocated: quota("3800m"),
			Conditions: []scheduling.PodGroupCondition{{Type: scheduling.GroupScheduled, Status: metav1.ConditionTrue, LastTransitionTime: at(0)}}}}
	waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "single", Labels: map[string]string{scheduling.LabelQueue: "low"}, CreationTimestamp: at(5)}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: quota("8")}}
	p := Queues(&QueuesInput{Queues: []*scheduling.Queue{low, high}, Groups: []*scheduling.PodGroup{group}, Waiting: []*corev1.Pod{waits}, Nodes: []*corev1.Node{node},
		Paths: map[string]bool{"/jobs/ns/genericjob/runs": true, "/jobs/ns/pytorchtrainingjob/runs": true, "/jobs/ns/genericjob/single": true}, Hidden: []Hidden{{What: "pods", Within: "ns"}}})
	golden.Compare(t, "testdata/queues.golden", asYAML(t, p))
}

// TestDominantShareIsThatOfTheScheduler verifies that the page of queues shows the largest of a queue's shares, with
// its resource, and whether it is a share of the quota, of the cluster or of the queue's nodes. The test renders each
// page 20 times, because the text must not depend on the order of maps.
func TestDominantShareIsThatOfTheScheduler(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	node := func(pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pool, Labels: map[string]string{"pool": pool}}, Status: corev1.NodeStatus{Allocatable: list("cpu", "10", "memory", "10Gi", "nvidia.com/gpu", "8")}}
	}
	both := []*corev1.Node{node("a"), node("b")}
	for name, c := range map[string]struct {
		used, quota corev1.ResourceList
		selector    *metav1.LabelSelector
		nodes       []*corev1.Node
		want        string
	}{
		"nothing":                 {nil, list("cpu", "4"), nil, both, ""},
		"of the cluster":          {list("cpu", "5", "memory", "4Gi"), nil, nil, both, "dominant share 25 %: the cluster's cpu"},
		"of its quota":            {list("cpu", "3800m", "memory", "4Gi"), list("cpu", "4"), nil, both, "dominant share 95 %: its quota of cpu"},
		"above its quota":         {list("cpu", "8"), list("cpu", "4"), nil, both, "dominant share 200 %: its quota of cpu"},
		"of its nodes":            {list("cpu", "5"), nil, &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, both, "dominant share 50 %: its nodes' cpu"},
		"equal":                   {list("memory", "10Gi", "cpu", "10", "nvidia.com/gpu", "8"), nil, nil, both, "dominant share 50 %: the cluster's cpu"},
		"of what there is none":   {list("example.com/fpga", "1", "cpu", "5"), nil, nil, both, "dominant share 100 %: the cluster's example.com/fpga"},
		"with a quota of nothing": {list("cpu", "1"), list("cpu", "0"), nil, both, "dominant share 100 %: its quota of cpu"},
		"nodes are hidden":        {list("cpu", "1", "memory", "4Gi"), list("cpu", "10"), nil, nil, "dominant share 10 %: its quota of cpu"},
	} {
		q := &scheduling.Queue{Spec: scheduling.QueueSpec{Quota: scheduling.QueueQuota{Requests: c.quota}, NodeSelector: c.selector}, Status: scheduling.QueueStatus{Allocated: c.used}}
		for range 20 {
			if got := Queues(&QueuesInput{Queues: []*scheduling.Queue{q}, Nodes: c.nodes}).Queues[0].Dominant; got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
				break
			}
		}
	}
}

// TestPlaceTellsWhenGroupsAreHidden verifies that, if the user may not see all groups, the place of a job says that it
// counts only the visible ones. The first visible group then still waits for its turn, because hidden groups may be
// ahead.
func TestPlaceTellsWhenGroupsAreHidden(t *testing.T) {
	in := world(t, "testdata/restarting.yaml")
	in.Job.Object.(*batch.GenericJob).Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "q"}}
	in.Groups = []*scheduling.PodGroup{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mnist"}, Spec: scheduling.PodGroupSpec{Queue: "q", MinMember: 1}}}
	in.Waiting = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mnist-worker-1", Labels: map[string]string{scheduling.LabelGroupName: "mnist"}}}}
	for partial, want := range map[bool]string{false: "1 of 1 that wait", true: "1 of 1 that wait and that you may see"} {
		in.Partial = partial
		p := JobOf(in, "explain")
		if i := slices.IndexFunc(p.Facts, func(f Fact) bool { return f.Name == "Place" }); i < 0 || p.Facts[i].Text != want {
			t.Errorf("partial %t: the facts are %v, want the place %q", partial, p.Facts, want)
		}
		turn := slices.ContainsFunc(p.Waits, func(w observed.Wait) bool { return w.For == "its turn" && w.Why == "It is "+want+"." })
		if turn != partial {
			t.Errorf("partial %t: it waits for %v", partial, p.Waits)
		}
	}
}

func TestNodesShowWhoUsesThem(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}, Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("8")}}}
	var pods []*corev1.Pod
	for i, name := range []string{"train-w-0", "train-w-1", "daemon"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "gpu-1",
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("4")}}}}}}
		if i < 2 {
			p.Spec.SchedulerName = scheduling.SchedulerName
			p.Annotations = map[string]string{scheduling.AnnotationRequestedBy: `["mei"]`}
			p.Labels = map[string]string{batch.LabelJobName: "train", batch.LabelJobKind: "GenericJob", scheduling.LabelQueue: "research"}
			p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("2")
		}
		pods = append(pods, p)
	}
	in := &NodesInput{Nodes: []*corev1.Node{node}, Pods: pods}
	golden.Compare(t, "testdata/nodes.golden", asYAML(t, map[string]any{"job": Nodes(in, "job", ""), "queue": Nodes(in, "queue", "gpu-1"), "user": Nodes(in, "user", "gone")}))
}

func TestLongLinesAreCut(t *testing.T) {
	source := LogSource{Replica: "w-0"}
	l := source.Line(time.Time{}, strings.Repeat("ä", 10_000))
	if len(l.Text) > maxLineSize+100 || !strings.HasSuffix(l.Text, "has the whole line)") || strings.Contains(l.Text, "\ufffd") {
		t.Errorf("%d bytes: …%s", len(l.Text), l.Text[len(l.Text)-60:])
	}
}
