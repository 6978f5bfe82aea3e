package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/testing/postgres"
)

// start is when the jobs of these tests begin.
var start = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// onBoth runs a test on SQLite and on PostgreSQL. address is the address of an empty database.
func onBoth(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "a b?#%.db")) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres.Start(t)) })
}

func open(t testing.TB, address string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(t testing.TB, s *Store, b *Batch) {
	t.Helper()
	if b.At.IsZero() {
		b.At = at(0)
	}
	if err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func job(uid string, version int64, change func(*archive.Job)) *archive.Job {
	j := &archive.Job{UID: uid, Version: version, Kind: "GenericJob", Namespace: "ns", Name: "job-" + uid, Queue: "q", User: "alice", Phase: "Running",
		Created: at(0), Replicas: 1, Object: []byte(`{"kind":"GenericJob"}`)}
	if change != nil {
		change(j)
	}
	return j
}

func attempt(uid, of string, version int64, change func(*archive.Attempt)) *archive.Attempt {
	a := &archive.Attempt{UID: uid, Version: version, Job: of, Replica: "r-w-0", Role: "w", Node: "n1", Created: at(0), Scheduled: at(1), Started: at(2),
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2"), "cpu": resource.MustParse("1500m")}, Pod: []byte(`{"kind":"Pod"}`)}
	if change != nil {
		change(a)
	}
	return a
}

func TestSizeGrowsWithWhatIsKept(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		size := func() int64 {
			t.Helper()
			n, err := s.Size(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := size()
		write(t, s, &Batch{Jobs: []*archive.Job{job("big", 1, func(j *archive.Job) {
			text := make([]byte, 1<<20)
			for i := range text {
				text[i] = 'a' + byte(i*i%23)
			}
			j.Object = text
		})}})
		if after := size(); before <= 0 || after <= before {
			t.Errorf("the size is %d, and %d with a large job", before, after)
		}
	})
}

func get(t *testing.T, s *Store, uid string) *archive.Job {
	t.Helper()
	j, err := s.Job(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func only(t *testing.T, s *Store, of string) *archive.Attempt {
	t.Helper()
	all, err := s.Attempts(t.Context(), of)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d attempts, %v; want one", len(all), err)
	}
	return all[0]
}

func TestWritingAgainChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		running := job("j", 5, func(j *archive.Job) {
			j.Conditions = []archive.Condition{{Type: "Running", Status: "True", Reason: "ReplicasRunning", Since: at(3)}}
		})
		ended := job("j", 9, func(j *archive.Job) {
			j.Phase, j.Ended, j.Why = "Failed", at(10), "a \x00 and \u202e"
			j.Conditions = []archive.Condition{{Type: "Running", Status: "False", Reason: "JobFinished", Since: at(10)}}
		})
		code := int32(3)
		first := attempt("p", "j", 6, nil)
		last := attempt("p", "j", 8, func(a *archive.Attempt) {
			a.Outcome, a.Ended, a.ExitCode, a.Cause = archive.Failed, at(9), &code, "Error"
		})
		event := &archive.Event{UID: "e", Version: 7, Job: "j", At: at(3), Object: []byte(`{"reason":"A"}`)}
		for range 2 {
			write(t, s, &Batch{Jobs: []*archive.Job{ended, running}, Attempts: []*archive.Attempt{last, first}, Events: []*archive.Event{event, event}})
		}
		want := job("j", 9, func(j *archive.Job) {
			j.Phase, j.Ended, j.Why = "Failed", at(10), "a \uFFFD and \u202e"
			j.Conditions = append(running.Conditions, ended.Conditions...)
		})
		if diff := cmp.Diff(want, get(t, s, "j")); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(last, only(t, s, "j")); diff != "" {
			t.Error(diff)
		}
		events, err := s.Events(t.Context(), "j")
		if diff := cmp.Diff([]*archive.Event{event}, events); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if _, err := s.Job(t.Context(), "other"); !errors.Is(err, ErrNone) {
			t.Errorf("a job that is not there: %v", err)
		}
	})
}

func TestReopenedArchiveKnowsWhatIsOpen(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		write(t, s, &Batch{
			Jobs: []*archive.Job{job("a", 1, nil), job("b", 2, func(j *archive.Job) { j.Gone = at(5) })},
			Attempts: []*archive.Attempt{attempt("p", "a", 1, nil), attempt("q", "a", 2, func(a *archive.Attempt) {
				a.Outcome, a.Ended = archive.Succeeded, at(4)
			})},
			Logs: []*archive.Log{{Attempt: "q", Job: "a", Container: "c", At: at(5), Text: []byte("x")}},
		})
		again := open(t, address, Options{})
		known, err := again.Known(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := &Known{Jobs: map[string]string{"a": "GenericJob"}, Versions: map[string]int64{"a": 1}, Open: map[string]bool{"p": true}, Logged: map[string]bool{"q": true}}
		if diff := cmp.Diff(want, known); diff != "" {
			t.Error(diff)
		}
	})
}

func TestMissedEndsAreBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		write(t, s, &Batch{Jobs: []*archive.Job{job("ended", 1, func(j *archive.Job) { j.Phase, j.Ended = "Succeeded", at(20) }), job("gone", 1, nil)},
			Attempts: []*archive.Attempt{attempt("p", "ended", 1, nil), attempt("q", "gone", 1, nil)}, At: at(30)})
		write(t, s, &Batch{Gone: []string{"gone"}, Lost: []string{"p", "q", "unknown"}, At: at(3600)})
		for of, end := range map[string]time.Time{"ended": at(20), "gone": at(30)} {
			if a := only(t, s, of); a.Outcome != archive.Lost || !a.Ended.Equal(end) {
				t.Errorf("the attempt of job %s: %s at %s, want Lost at %s", of, a.Outcome, a.Ended, end)
			}
		}
		if j := get(t, s, "gone"); !j.Gone.Equal(at(3600)) {
			t.Errorf("the job is gone since %s", j.Gone)
		}
		// If the pod still exists, a later record of the pod replaces the lost one.
		write(t, s, &Batch{Attempts: []*archive.Attempt{attempt("q", "gone", 2, func(a *archive.Attempt) { a.Outcome, a.Ended = archive.Succeeded, at(50) })}})
		if a := only(t, s, "gone"); a.Outcome != archive.Succeeded || !a.Ended.Equal(at(50)) {
			t.Errorf("after its end was seen: %s at %s", a.Outcome, a.Ended)
		}
	})
}

func TestOldestLogsGoFirst(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{JobLogs: 30, AllLogs: 70})
		kept := func() string {
			var all []string
			for _, of := range []string{"a", "b", "c"} {
				logs, err := s.Logs(t.Context(), of)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range logs {
					all = append(all, fmt.Sprintf("%s/%s", l.Job, l.Attempt))
				}
			}
			return strings.Join(all, " ")
		}
		n := 0
		for _, of := range []string{"a", "b", "c"} {
			for range 4 {
				n++
				write(t, s, &Batch{Logs: []*archive.Log{{Attempt: fmt.Sprintf("p%02d", n), Job: of, Container: "c", At: at(n), Text: []byte("0123456789")}}})
			}
			want := map[string]string{"a": "a/p02 a/p03 a/p04", "b": "a/p02 a/p03 a/p04 b/p06 b/p07 b/p08", "c": "a/p04 b/p06 b/p07 b/p08 c/p10 c/p11 c/p12"}[of]
			if got := kept(); got != want {
				t.Errorf("after the logs of job %s: %s, want %s", of, got, want)
			}
		}
		write(t, s, &Batch{Logs: []*archive.Log{{Attempt: "p99", Job: "c", Container: "c", At: at(99), Text: []byte{0, 0xff, '\n'}, Cut: true}}})
		logs, err := s.Logs(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		if l := logs[len(logs)-1]; string(l.Text) != "\x00\xff\n" || !l.Cut {
			t.Errorf("a log of bytes: %q, cut %t", l.Text, l.Cut)
		}
	})
}

func TestJobsAreFoundWhereOneMayLook(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		write(t, s, &Batch{Jobs: []*archive.Job{
			job("1", 1, func(j *archive.Job) { j.Name, j.Phase, j.Ended, j.Gone = "Train_a", "Succeeded", at(5), at(6) }),
			job("2", 1, func(j *archive.Job) { j.Name, j.Namespace, j.Created = "trainXa", "other", at(10) }),
			job("3", 1, func(j *archive.Job) {
				j.Name, j.Kind, j.User, j.Queue, j.Created = "eval", "PyTorchTrainingJob", "bob", "", at(20)
			}),
			job("4", 1, func(j *archive.Job) {
				j.Name, j.Kind, j.Namespace, j.User, j.Queue, j.Created, j.Gone = "cut", "Gone", "third", "eve", "", at(20), at(30)
			}),
		}})
		for _, tc := range []struct {
			name   string
			scopes []Scope
			query  archive.JobQuery
			want   string
		}{
			{"all, the newest first", nil, archive.JobQuery{}, "4 3 2 1"},
			{"nowhere", []Scope{}, archive.JobQuery{}, ""},
			{"one namespace", []Scope{{"GenericJob", "ns"}, {"PyTorchTrainingJob", "other"}}, archive.JobQuery{}, "1"},
			{"a kind everywhere", []Scope{{"GenericJob", ""}}, archive.JobQuery{}, "2 1"},
			{"part of a name", nil, archive.JobQuery{Text: "TRAIN"}, "2 1"},
			{"a part with a character of patterns", nil, archive.JobQuery{Text: "n_a"}, "1"},
			{"a name", nil, archive.JobQuery{Name: "eval"}, "3"},
			{"a user", nil, archive.JobQuery{User: "bob"}, "3"},
			{"a queue", nil, archive.JobQuery{Queue: "q"}, "2 1"},
			{"an outcome", nil, archive.JobQuery{Phase: "Succeeded"}, "1"},
			{"those that are gone", nil, archive.JobQuery{Gone: true}, "4 1"},
			{"those that were there after a time", nil, archive.JobQuery{From: at(6)}, "4 3 2"},
			{"those that were there before a time", nil, archive.JobQuery{To: at(10)}, "1"},
			{"jobs that succeeded", nil, archive.JobQuery{Outcome: "Succeeded"}, "1"},
			{"jobs that were deleted before their ends", nil, archive.JobQuery{Outcome: "Deleted"}, "4"},
			{"jobs that run", nil, archive.JobQuery{Outcome: "Running"}, "3 2"},
			{"the second one", nil, archive.JobQuery{Limit: 1, After: archive.Cursor{Created: at(20), UID: "4"}}, "3"},
			{"those after the last one", nil, archive.JobQuery{After: archive.Cursor{Created: at(0), UID: "1"}}, ""},
		} {
			jobs, err := s.Jobs(t.Context(), tc.scopes, &tc.query)
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			var got []string
			for _, j := range jobs {
				got = append(got, j.UID)
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("%s: %q, want %q", tc.name, text, tc.want)
			}
		}
	})
}

func TestHeldIsWhatOverlaps(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		ended := func(begin, end int) func(*archive.Attempt) {
			return func(a *archive.Attempt) { a.Scheduled, a.Outcome, a.Ended = at(begin), archive.Succeeded, at(end) }
		}
		write(t, s, &Batch{Jobs: []*archive.Job{job("j", 1, nil), job("k", 1, func(j *archive.Job) { j.Namespace = "other" })}, Attempts: []*archive.Attempt{
			attempt("before", "j", 1, ended(0, 100)), attempt("across", "j", 1, ended(50, 150)), attempt("running", "j", 1, func(a *archive.Attempt) { a.Scheduled = at(190) }),
			attempt("after", "j", 1, ended(200, 300)), attempt("pending", "j", 1, func(a *archive.Attempt) { a.Scheduled = time.Time{} }),
			attempt("elsewhere", "k", 1, ended(100, 200)),
		}})
		sums := archive.Sums{Span: archive.Span{From: at(100), To: at(200)}, By: archive.ByUser, Extended: true}
		if err := s.Held(t.Context(), []Scope{{"GenericJob", "ns"}}, at(100), at(200), sums.Add); err != nil {
			t.Fatal(err)
		}
		want := []archive.Usage{{From: at(100), To: at(200), Key: "alice", Resource: "nvidia.com/gpu", Hours: 2 * 60 / 3600.}}
		if diff := cmp.Diff(want, sums.Rows()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNewerArchiveIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		if _, err := s.db.Exec("INSERT INTO migrations (number, at) VALUES (1000, 0)"); err != nil {
			t.Fatal(err)
		}
		if again, err := Open(t.Context(), address, Options{}); err == nil || !strings.Contains(err.Error(), "use the newer program") {
			t.Errorf("%v, %v", again, err)
		}
	})
}

// TestArchiveIsOfOneCluster verifies that if several clusters claim an archive at the same time, exactly one succeeds
// and still owns the archive after it is reopened.
func TestArchiveIsOfOneCluster(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		errs := make([]error, 4)
		var claims sync.WaitGroup
		for i := range errs {
			s := open(t, address, Options{})
			claims.Go(func() { errs[i] = s.Claim(t.Context(), fmt.Sprint("uid-", i)) })
		}
		claims.Wait()
		owner := slices.Index(errs, nil)
		if owner < 0 {
			t.Fatal("no cluster has the archive:", errors.Join(errs...))
		}
		again := open(t, address, Options{})
		for i := range errs {
			err, uid := again.Claim(t.Context(), fmt.Sprint("uid-", i)), fmt.Sprint("uid-", owner)
			switch {
			case i == owner && err != nil:
				t.Errorf("%s cannot have its archive: %v", uid, err)
			case i != owner && (errs[i] == nil || err == nil || !strings.Contains(err.Error(), "belongs to the cluster with the UID "+uid+", and the UID of this cluster is uid-"+fmt.Sprint(i))):
				t.Errorf("uid-%d got the archive of %s, too: %v, then %v", i, uid, errs[i], err)
			}
		}
	})
}

// TestListsGoOnWhereTheyEnded verifies that the pages of a list contain each job exactly once, even if jobs have equal
// creation times or new jobs are added in between.
func TestListsGoOnWhereTheyEnded(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		for i := range 25 {
			write(t, s, &Batch{Jobs: []*archive.Job{job(fmt.Sprintf("%02d", i), 1, func(j *archive.Job) { j.Created = at(i / 10) })}})
		}
		var got []string
		q := archive.JobQuery{Limit: 4}
		for range 10 {
			page, err := s.Jobs(t.Context(), nil, &q)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range page {
				got = append(got, j.UID)
			}
			if len(page) < q.Limit {
				break
			}
			if q.After, err = archive.ParseCursor(archive.CursorOf(page[len(page)-1]).String()); err != nil {
				t.Fatal(err)
			}
			write(t, s, &Batch{Jobs: []*archive.Job{job(fmt.Sprintf("new-%d", len(got)), 1, func(j *archive.Job) { j.Created = at(100) })}})
		}
		var want []string
		for i := 24; i >= 0; i-- {
			want = append(want, fmt.Sprintf("%02d", i))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestOlderArchiveIsBroughtUpToDate verifies that opening an archive applies the migrations that it lacks: the test
// undoes the later migrations and opens the archive again.
func TestOlderArchiveIsBroughtUpToDate(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		s := open(t, address, Options{})
		write(t, s, &Batch{Jobs: []*archive.Job{job("j", 1, nil)}})
		for _, statement := range []string{"DROP INDEX jobs_place", "DROP INDEX jobs_queue", "DROP INDEX jobs_user", "DROP INDEX attempts_held", "CREATE INDEX attempts_scheduled ON attempts (scheduled)",
			"DROP TABLE cluster", "DELETE FROM migrations WHERE number > 1"} {
			if _, err := s.db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		again := open(t, address, Options{})
		if _, err := again.db.Exec("DROP INDEX jobs_place"); err != nil {
			t.Errorf("the index was not created: %v", err)
		}
		if j := get(t, again, "j"); j.Name != "job-j" {
			t.Errorf("the job is called %q", j.Name)
		}
	})
}
