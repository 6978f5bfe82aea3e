package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// crowded returns a scene with 10,000 jobs, 2,000 of which run.
func crowded() *scene {
	s := &scene{&stage{}, time.Now()}
	for i := range 500 {
		s.node(fmt.Sprintf("gpu-%03d", i), true)
	}
	s.queue("research", 50, "2000", "4000", func(*scheduling.QueueSpec) {})
	for i := range 10_000 {
		p := play{fmt.Sprintf("team-%02d", i%20), fmt.Sprintf("job-%05d", i), "research", fmt.Sprintf("user-%03d", i%300), batch.JobSucceeded, 1, 0, "1",
			time.Duration(i+10) * time.Minute, time.Duration(i+9) * time.Minute, time.Duration(i+1) * time.Minute, 0, "", func(int32) string { return fmt.Sprintf("gpu-%03d", i%500) }}
		switch i % 5 {
		case 0:
			p.phase, p.running, p.ended = batch.JobRunning, 1, 0
		case 1:
			p.phase, p.message = batch.JobFailed, "Replica job-worker-0 has failed with exit code 1."
		}
		s.job(&p)
	}
	return s
}

// BenchmarkFirstPaint measures the time from the click until the first contents of the page Jobs are painted, in a
// browser that has cached the console's style and script.
func BenchmarkFirstPaint(b *testing.B) {
	tab := open(b, serveStage(b, crowded().stage, nil))
	tab.visit("/")
	tab.shows("of 10,000 jobs")
	var paint, answer []float64
	for b.Loop() {
		tab.visit("/nodes")
		tab.visit("/")
		got := evaluate[[]float64](tab, `new Promise(done => {
			const watch = new PerformanceObserver(list => {
				watch.disconnect();
				done([list.getEntries().find(e => e.name === 'first-contentful-paint')?.startTime ?? -1, performance.getEntriesByType('navigation')[0].responseEnd]);
			});
			watch.observe({type: 'paint', buffered: true});
		})`)
		paint, answer = append(paint, got[0]), append(answer, got[1])
	}
	b.ReportMetric(median(paint), "first-contentful-paint-ms")
	b.ReportMetric(slices.Max(paint), "largest-ms")
	b.ReportMetric(median(answer), "answer-ms")
	b.ReportMetric(0, "ns/op")
}
