package recorder

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/metrics"
)

// TestRecordsAreWrittenAtOnce verifies that the writer waits for no timer before it writes a record. In the bubble of
// synctest, time advances only while all goroutines wait, so the result does not depend on the load of the machine.
func TestRecordsAreWrittenAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "archive.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), file, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := &Recorder{Options: Options{Store: s}, more: make(chan struct{}, 1), attempts: map[string]*attempt{}, writes: metrics.ConsoleArchiveWrites.Counter()}
		r.room = sync.NewCond(&r.mu)
		ctx, stop := context.WithCancel(t.Context())
		r.running.Go(func() { r.write(ctx) })
		defer r.Wait()
		defer stop()
		for i := range 3 {
			time.Sleep(time.Second) // the writer waits for the next record
			began := time.Now()
			r.add(ctx, func(b *store.Batch) { b.Gone = append(b.Gone, "job") })
			synctest.Wait()
			if n := testutil.ToFloat64(r.writes.WithLabelValues("ok")); n != float64(i+1) || time.Since(began) != 0 {
				t.Errorf("%s after record %d there are %.0f writes", time.Since(began), i, n)
			}
		}
	})
}
