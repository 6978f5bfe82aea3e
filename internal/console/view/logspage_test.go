package view

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// jobWith returns a job with the given number of replicas for each role.
func jobWith(roles map[string]int32) *observed.Job {
	j := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "u", CreationTimestamp: at(0)}}
	for name, n := range roles {
		j.Spec.ReplicaSpecs = append(j.Spec.ReplicaSpecs, batch.ReplicaSpec{Type: name, Replicas: &n, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}})
	}
	slices.SortFunc(j.Spec.ReplicaSpecs, func(a, b batch.ReplicaSpec) int { return strings.Compare(a.Type, b.Type) })
	kind, err := kinds.ByName("GenericJob")
	if err != nil {
		panic(err) // the kind exists
	}
	return &observed.Job{Kind: &kind, Object: j}
}

func TestLogFilters(t *testing.T) {
	one, two := map[string]int32{"w": 8}, map[string]int32{"ps": 2, "w": 8}
	for _, c := range []struct {
		roles map[string]int32
		query string
		// selected holds the ranks of role w that the filter selects if rank 1 has failed and the others run. problem
		// is a part of LogFilter.Problem. encoded is the result of Encode.
		selected, problem, encoded string
		one                        bool
	}{
		{roles: one, query: "", selected: "01234567"},
		{roles: one, query: "ranks=0-3,7", selected: "01237", encoded: "ranks=0-3%2C7&role=w"},
		{roles: one, query: "ranks=1", selected: "1", encoded: "ranks=1&role=w", one: true},
		{roles: one, query: "replica=w-1", selected: "1", encoded: "ranks=1&role=w", one: true},
		{roles: one, query: "state=failed&times=1", selected: "1", encoded: "state=failed&times=1"},
		{roles: one, query: "state=running&ranks=+0-1,+2", selected: "02", encoded: "ranks=0-1%2C2&role=w&state=running"},
		{roles: one, query: "state=odd", selected: "01234567"},
		{roles: two, query: "ranks=1", selected: "1", encoded: "ranks=1"},
		{roles: two, query: "role=w", selected: "01234567", encoded: "role=w"},
		{roles: two, query: "role=ps", encoded: "role=ps"},
		{roles: two, query: "role=x", problem: `The job has no role "x"; it has: ps, w.`, encoded: "role=x"},
		{roles: one, query: "ranks=a", problem: "is no list of ranks", encoded: "ranks=a"},
		{roles: one, query: "ranks=3-1", problem: "is no list of ranks", encoded: "ranks=3-1"},
		{roles: one, query: "ranks=1,,2", problem: "is no list of ranks", encoded: "ranks=1%2C%2C2"},
		{roles: one, query: "ranks=99999999999", problem: "is no list of ranks", encoded: "ranks=99999999999"},
		{roles: one, query: "replica=w", problem: "names no replica"},
		{roles: one, query: "replica=w-x", problem: "is no list of ranks", encoded: "ranks=x&role=w"},
	} {
		v, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		f := LogFilterOf(jobWith(c.roles), v)
		got := ""
		for rank := range 8 {
			if f.Selects("w", rank, rank == 1, rank != 1) {
				got += fmt.Sprint(rank)
			}
		}
		if got != c.selected || f.One() != c.one || f.Encode() != c.encoded || !strings.Contains(f.Problem, c.problem) || (f.Problem == "") != (c.problem == "") {
			t.Errorf("%q of %v selects %q, one %t, %q, problem %q", c.query, c.roles, got, f.One(), f.Encode(), f.Problem)
		}
	}
}

func TestLogNotes(t *testing.T) {
	for want, got := range map[string]string{
		"": LogNote(8, 8, 0),
		"100 of 1200 replicas are shown: failed ones first, then by role and rank. Select others by rank or state.":                                       LogNote(100, 1200, 0),
		"100 of 101 replicas are shown: failed ones first, then by role and rank. One that has failed is not among them. Select others by rank or state.": LogNote(100, 101, 1),
		"100 of 300 replicas are shown: failed ones first, then by role and rank. 5 that have failed are not among them. Select others by rank or state.": LogNote(100, 300, 5),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// podOf returns a running pod of w-0 with the number of an attempt. The pod was created and started began seconds after
// noon.
func podOf(attempt string, began int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j-w-0", UID: types.UID("pod-" + attempt), CreationTimestamp: at(began),
		Labels: map[string]string{batch.LabelReplicaType: "w", batch.LabelReplicaRank: "0", batch.LabelReplicaAttempt: attempt}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(began)}}}}}}
}

func renamed(a archive.AttemptDetails, uid string) archive.AttemptDetails {
	a.UID = uid
	return a
}

func TestLogAttempts(t *testing.T) {
	code := int32(1)
	first := archive.AttemptDetails{Attempt: archive.Attempt{UID: "pod-0", Role: "w", Replica: "j-w-0", Created: noon.AddDate(0, 0, -1), Started: noon.AddDate(0, 0, -1), Ended: noon.Add(5 * time.Minute), Outcome: archive.Failed, ExitCode: &code}}
	second := archive.AttemptDetails{Attempt: archive.Attempt{UID: "pod-1", Number: 1, Role: "w", Replica: "j-w-0", Created: noon.Add(6 * time.Minute), Started: noon.Add(6 * time.Minute)}}
	const archived = "/history/u"
	const kept = archived + "/logs"
	for _, c := range []struct {
		name, query string
		present     string
		archived    string
		pods        []*corev1.Pod
		attempts    []archive.AttemptDetails
		want        []Link
		kept        string
		earlier     bool
	}{
		{"the archive has the earlier one", "replica=w-0", "pod-1", archived, []*corev1.Pod{podOf("1", 360)}, []archive.AttemptDetails{first, second},
			[]Link{{"attempt 2, since 12:06:00", "/jobs/ns/genericjob/j/logs?ranks=0&role=w", true}, {"attempt 1: exit code 1, Dec 31 12:00:00–Jan 1 12:05:00", kept + "?replica=w-0&attempt=1", false}}, kept, false},
		{"the replica is gone", "replica=w-0", "", archived, nil, []archive.AttemptDetails{first},
			[]Link{{"attempt 1: exit code 1, Dec 31 12:00:00–Jan 1 12:05:00", kept + "?replica=w-0&attempt=1", false}}, kept, false},
		{"there is no archive", "replica=w-0", "pod-1", "", []*corev1.Pod{podOf("0", 0), podOf("1", 360)}, nil,
			[]Link{{"attempt 2, since 12:06:00", "/jobs/ns/genericjob/j/logs?ranks=0&role=w", true}, {"attempt 1, since 12:00:00", "", false}}, "", true},
		{"it was scaled away and back", "replica=w-0", "pod-0", archived, []*corev1.Pod{podOf("0", 600)}, []archive.AttemptDetails{renamed(first, "before"), second},
			[]Link{{"attempt 1, since 12:10:00", "/jobs/ns/genericjob/j/logs?ranks=0&role=w", true}, {"attempt 2, since 12:06:00", kept + "?replica=w-0&attempt=2", false},
				{"attempt 1: exit code 1, Dec 31 12:00:00–Jan 1 12:05:00", kept + "?replica=w-0&attempt=1&pod=before", false}}, kept, false},
		{"there is one attempt", "replica=w-0", "pod-0", archived, []*corev1.Pod{podOf("0", 0)}, nil, nil, kept, false},
		{"all replicas", "", "", archived, []*corev1.Pod{podOf("1", 360)}, []archive.AttemptDetails{first}, nil, kept, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := jobWith(map[string]int32{"w": 2})
			j.Status().Tasks = []batch.Tasks{{Type: "w", Replicas: []batch.ReplicaStatus{{Name: "j-w-0", Attempt: 1}}}}
			v, _ := url.ParseQuery(c.query)
			in := &JobInput{Job: j, Pods: c.pods, Now: noon.Add(time.Hour)}
			in.AddArchived(c.attempts)
			p := Logs(in, LogFilterOf(j, v))
			p.AddAttempts(in, c.present, c.archived)
			if !slices.Equal(p.Attempts, c.want) || p.Kept != c.kept || (p.Earlier != "") != c.earlier {
				t.Errorf("attempts %+v, kept %q, earlier %q", p.Attempts, p.Kept, p.Earlier)
			}
		})
	}
}
