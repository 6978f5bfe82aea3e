package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestDefinitionsAreConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range All() {
		t.Run(d.Name, func(t *testing.T) {
			if seen[d.Name] || !strings.HasPrefix(d.Name, "t9k_") {
				t.Error("the name is taken or lacks the prefix")
			}
			seen[d.Name] = true
			if strings.HasSuffix(d.Name, "_total") != (d.Type == Counter) {
				t.Error("want names with the suffix _total for counters only")
			}
			if (len(d.Buckets) > 0) != (d.Type == Histogram) || !slices.IsSorted(d.Buckets) {
				t.Error("want ascending buckets for histograms only")
			}
			if strings.HasPrefix(d.Name, "t9k_scheduler_") != (d.Program == Scheduler) || strings.HasPrefix(d.Name, "t9k_console_") != (d.Program == Console) || d.Help == "" {
				t.Errorf("the program is %q and the help %q", d.Program, d.Help)
			}
			if err := prometheus.NewRegistry().Register(map[Type]prometheus.Collector{Gauge: d.Gauge(), Counter: d.Counter(), Histogram: d.Histogram()}[d.Type]); err != nil {
				t.Error(err)
			}
		})
	}
}
