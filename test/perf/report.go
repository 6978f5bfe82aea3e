package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// target is the bound of one figure of this repository's programs.
type target struct {
	figure string
	// of names the system whose figure has the bound. Empty means ours.
	of string
	// least is true for a lower bound.
	least bool
	// against names the system to compare with. The bound is then factor times the figure of that system. If against is
	// empty, the bound is value.
	against string
	factor  float64
	value   float64
}

// label is the title and unit of a figure.
type label struct{ name, title, unit string }

// labels are the labels of all figures, in the order of the table. Figures without a label come last, under their own
// names.
var labels = []label{
	{"running", "first submit until all pods run", "s"},
	{"start_p50", "submit until all pods run, median", "ms"},
	{"start_p99", "submit until all pods run, p99", "ms"},
	{"recovery", "until all run again", "s"},
	{"say_p50", "last pod runs until its job is Running, median", "s"},
	{"say_p99", "last pod runs until its job is Running, p99", "s"},
	{"lag_p50", "last pod's end until job's, median", "s"},
	{"lag_p99", "last pod's end until job's, p99", "s"},
	{"pods_per_s", "pods per second", ""},
	{"created_per_s", "pods created per second", ""},
	{"first_bound", "caches filled until the first binding", "ms"},
	{"wait_p50", "last pod's creation until all of its group are bound, median", "ms"},
	{"wait_p99", "…, p99", "ms"},
	{"first_evicted", "last pod's creation until the first eviction", "ms"},
	{"look_cpu", "CPU of a start with nothing but the unfit groups", "s"},
	{"cpu_per_1000", "scheduler's CPU per 1,000 pods", "s"},
	{"writes_per_pod", "scheduler's writes per pod", ""},
	{"cpu", "controller's CPU", "s"},
	{"requests", "controller's requests", ""},
	{"requests_per_job", "… per job", ""},
	{"watches", "… new watches, not counted", ""},
	{"writes", "controller's writes", ""},
	{"rss", "controller's memory", "MiB"},
	{"rss_peak", "… at most", "MiB"},
	{"rss_peak_again", "… at most, after a start beside all pods", "MiB"},
	{"cpu_growth", "growth of CPU per pod", "×"},
	{"requests_growth", "growth of requests per pod", "×"},
	{"ready", "t9k local up until all is ready", "s"},
	{"hello", "t9k run of examples/hello to its end", "s"},
	{"idle", "CPU with nothing to do", "% of a core"},
	{"filled", "start of the console until it shows all jobs", "s"},
	{"page_p50", "Jobs page, median", "ms"},
	{"page_p99", "…, p99", "ms"},
	{"page_search_p50", "Jobs page with a search, median", "ms"},
	{"page_search_p99", "…, p99", "ms"},
	{"row_p50", "change of a status until its row has reached a viewer, median", "ms"},
	{"row_p95", "…, p95", "ms"},
	{"requests_alone", "requests to the API server with one viewer", "per s"},
	{"requests_all", "… with 100 viewers", "per s"},
	{"rss_all", "memory, resident sets added up", "MiB"},
	{"pss_all", "…, what they share counted once", "MiB"},
}

// report is the result of a run of this program.
type report struct {
	Date time.Time `json:"date"`
	CPUs int       `json:"cpus"`
	Go   string    `json:"go"`
	// Nodes is the number of simulated nodes.
	Nodes int `json:"nodes"`
	// Pods is the number of pods in the workloads that measure schedulers.
	Pods      int               `json:"pods"`
	Workloads []*workloadReport `json:"workloads"`
}

type workloadReport struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Systems holds the results of each system in the order of measurement.
	Systems map[string][]*result `json:"systems"`
	Checks  []checked            `json:"checks,omitempty"`
}

// checked is a target with the measured value: the figure, or its ratio to the figure of the system Against.
type checked struct {
	Figure  string  `json:"figure"`
	Of      string  `json:"of,omitempty"`
	Against string  `json:"against,omitempty"`
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit"`
	Least   bool    `json:"least,omitempty"`
	OK      bool    `json:"ok"`
}

func newReport(s *settings) *report {
	return &report{Pods: s.pods, Date: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(), Nodes: s.nodes}
}

func (r *report) add(w *workload, sys *system, result *result) {
	report := r.of(w)
	report.Systems[sys.name] = append(report.Systems[sys.name], result)
}

func (r *report) of(w *workload) *workloadReport {
	for _, known := range r.Workloads {
		if known.Name == w.name {
			return known
		}
	}
	report := &workloadReport{Name: w.name, Title: w.title, Systems: map[string][]*result{}}
	r.Workloads = append(r.Workloads, report)
	return report
}

// median returns the median of a figure over the results of a system; false if there is none.
func (w *workloadReport) median(system, figure string) (float64, bool) {
	var all []float64
	for _, r := range w.Systems[system] {
		if v, ok := r.Figures[figure]; ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// check compares the workload's figures with its targets; it skips targets without a figure.
func (w *workloadReport) check(targets []target) {
	w.Checks = nil
	for _, t := range targets {
		value, ok := w.median(cmp.Or(t.of, "ours"), t.figure)
		limit := t.value
		if ok && t.against != "" {
			var other float64
			if other, ok = w.median(t.against, t.figure); ok {
				value, limit = value/other, t.factor
			}
		}
		if ok {
			w.Checks = append(w.Checks, checked{t.figure, t.of, t.against, value, limit, t.least, value == limit || value < limit != t.least})
		}
	}
}

// print compares the workload's figures with its targets, keeps the checks in the report, and writes a table of the
// figures with one column for each system.
func (r *report) print(out io.Writer, w *workload) {
	report := r.of(w)
	report.check(w.targets)
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	on := w.on(r.systems(report))
	fmt.Fprintf(t, "\n%s\t", w.title)
	for _, sys := range on {
		fmt.Fprintf(t, "%s\t", sys.title)
	}
	fmt.Fprintln(t, "target")
	for _, l := range report.labels() {
		fmt.Fprintf(t, "  %s\t", strings.TrimSpace(l.title+" ["+l.unit+"]"))
		for _, sys := range on {
			cell := "–"
			if v, ok := report.median(sys.name, l.name); ok {
				cell = number(v)
			}
			fmt.Fprintf(t, "%s\t", cell)
		}
		fmt.Fprintln(t, report.verdicts(l.name))
	}
	t.Flush()
}

func (r *report) systems(w *workloadReport) []string {
	var all []string
	for name := range w.Systems {
		all = append(all, name)
	}
	return all
}

// labels returns the labels of the figures that the workload has, in the order of the table.
func (w *workloadReport) labels() []label {
	have := map[string]bool{}
	for _, results := range w.Systems {
		for _, r := range results {
			for name := range r.Figures {
				have[name] = true
			}
		}
	}
	var all []label
	for _, l := range labels {
		if have[l.name] {
			all = append(all, l)
			delete(have, l.name)
		}
	}
	var rest []string
	for name := range have {
		rest = append(rest, name)
	}
	slices.Sort(rest)
	for _, name := range rest {
		all = append(all, label{name: name, title: name})
	}
	return all
}

func (w *workloadReport) verdicts(figure string) string {
	var all []string
	for _, c := range w.Checks {
		if c.Figure != figure {
			continue
		}
		verdict := "ok"
		if !c.OK {
			verdict = "MISS"
		}
		bound := "≤"
		if c.Least {
			bound = "≥"
		}
		of := ""
		if c.Of != "" {
			of = c.Of + " "
		}
		if c.Against == "" {
			all = append(all, fmt.Sprintf("%s%s %s %s", of, bound, number(c.Limit), verdict))
		} else {
			all = append(all, fmt.Sprintf("%s%.2f × %s (%s %s) %s", of, c.Value, c.Against, bound, number(c.Limit), verdict))
		}
	}
	return strings.Join(all, ", ")
}

func number(v float64) string {
	switch {
	case v == float64(int(v)):
		return fmt.Sprintf("%d", int(v))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func (r *report) save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
