package recorder

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/metrics"
)

// TestRecordsThatCannotBeWrittenLag verifies that records wait while the database refuses them, that the lag shows for
// how long, and that they are written when the database accepts them again.
func TestRecordsThatCannotBeWrittenLag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "archive.db")
	s, err := store.Open(t.Context(), file, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rename := func(from, to string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
			t.Fatal(err)
		}
	}
	r := &Recorder{Options: Options{Store: s}, more: make(chan struct{}, 1), attempts: map[string]*attempt{}, writes: metrics.ConsoleArchiveWrites.Counter()}
	r.room = sync.NewCond(&r.mu)
	if lag := r.lag(time.Now().Add(time.Hour)); lag != 0 {
		t.Errorf("without a record the lag is %s", lag)
	}
	rename("moments", "away")
	ctx, stop := context.WithCancel(t.Context())
	r.running.Go(func() { r.write(ctx) })
	defer r.Wait()
	defer stop()
	writes := func(result string) float64 { return testutil.ToFloat64(r.writes.WithLabelValues(result)) }
	await := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	began := time.Now()
	r.add(ctx, func(b *store.Batch) { b.Gone = append(b.Gone, "job") })
	await("two writes have failed", func() bool { return writes("failed") >= 2 })
	if lag := r.lag(began.Add(time.Hour)); lag > time.Hour || lag < time.Hour-time.Since(began) {
		t.Errorf("an hour after the record the lag is %s", lag)
	}
	rename("away", "moments")
	await("the record is written", func() bool { return writes("ok") > 0 && r.lag(time.Now()) == 0 })
	if n := testutil.CollectAndCount(r, metrics.ConsoleArchiveLag.Name, metrics.ConsoleArchiveSize.Name, metrics.ConsoleArchiveWrites.Name); n != 4 {
		t.Errorf("the recorder has %d metrics, want the lag, the size and two results", n)
	}
}
