package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/testing/postgres"
)

// BenchmarkUsage sums the usage of 100,000 attempts of 10,000 jobs in a month by day and user.
func BenchmarkUsage(b *testing.B) {
	b.Run("SQLite", func(b *testing.B) { benchmarkUsage(b, filepath.Join(b.TempDir(), "archive.db")) })
	b.Run("PostgreSQL", func(b *testing.B) { benchmarkUsage(b, postgres.Start(b)) })
}

func benchmarkUsage(b *testing.B, address string) {
	const jobs, attempts, month = 10_000, 10, 30 * 24 * time.Hour
	s := open(b, address, Options{})
	pod, object := []byte(`{"kind":"Pod","spec":"`+strings.Repeat("p", 2<<10)+`"}`), []byte(`{"kind":"GenericJob","spec":"`+strings.Repeat("j", 3<<10)+`"}`)
	for i := 0; i < jobs; i += 1000 {
		batch := &Batch{}
		for k := i; k < i+1000; k++ {
			uid, begin := fmt.Sprintf("job-%d", k), at(0).Add(time.Duration(k)*(month/jobs))
			batch.Jobs = append(batch.Jobs, job(uid, 1, func(j *archive.Job) {
				j.User, j.Queue, j.Created, j.Object = fmt.Sprintf("user-%d", k%100), fmt.Sprintf("queue-%d", k%10), begin, object
			}))
			for n := range attempts {
				batch.Attempts = append(batch.Attempts, attempt(fmt.Sprintf("%s-%d", uid, n), uid, 1, func(a *archive.Attempt) {
					a.Rank, a.Created, a.Scheduled, a.Started, a.Outcome, a.Ended, a.Pod = n, begin, begin, begin, archive.Succeeded, begin.Add(10*time.Hour), pod
					a.Requests["memory"] = *resource.NewQuantity(int64(1+k%20)<<30, resource.BinarySI)
				}))
			}
		}
		write(b, s, batch)
	}
	for b.Loop() {
		sums := archive.Sums{Span: archive.Span{From: at(0), To: at(0).Add(month), Step: 24 * time.Hour}, By: archive.ByUser}
		if err := s.Held(b.Context(), []Scope{{"GenericJob", "ns"}}, sums.Span.From, sums.Span.To, sums.Add); err != nil {
			b.Fatal(err)
		}
		if rows := sums.Rows(); len(rows) != 30*100*3 || rows[0].Resource != string(corev1.ResourceCPU) {
			b.Fatalf("%d rows, the first of which is %v", len(rows), rows[0])
		}
	}
}
