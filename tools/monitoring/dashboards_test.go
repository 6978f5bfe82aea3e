package monitoring

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const dashboardDir = root + "/charts/t9k-batch/files/dashboards"

// dashboard holds the fields of a Grafana dashboard that these tests check.
type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
	AllValue   string `json:"allValue"`
}

type panel struct {
	ID         int        `json:"id"`
	Type       string     `json:"type"`
	Title      string     `json:"title"`
	Datasource datasource `json:"datasource"`
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		RefID      string     `json:"refId"`
		Datasource datasource `json:"datasource"`
		Expr       string     `json:"expr"`
	} `json:"targets"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// dashboards returns the dashboards of the chart by file.
func dashboards(t *testing.T) map[string]*dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dashboardDir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("the dashboards are %v (%v)", files, err)
	}
	all := map[string]*dashboard{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := &dashboard{}
		if err := json.Unmarshal(data, d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d
	}
	return all
}

// TestDashboardsHaveGrafanasShape verifies that each dashboard has the fields that Grafana requires, that its queries
// use the data source that the user selects, and that its panels have different titles and do not overlap.
func TestDashboardsHaveGrafanasShape(t *testing.T) {
	uids := map[string]bool{}
	for file, d := range dashboards(t) {
		if d.Title == "" || d.SchemaVersion < 36 || !regexp.MustCompile(`^[\w-]{1,40}$`).MatchString(d.UID) || uids[d.UID] {
			t.Errorf("%s: title %q, schema version %d, uid %q", file, d.Title, d.SchemaVersion, d.UID)
		}
		uids[d.UID] = true
		variables := d.Templating.List
		if len(variables) == 0 || variables[0].Name != "datasource" || variables[0].Type != "datasource" {
			t.Errorf("%s: the first variable is not the data source", file)
		}
		ids := map[int]bool{}
		for i, p := range d.Panels {
			if p.ID == 0 || ids[p.ID] || p.Title == "" {
				t.Errorf("%s: panel %q has the id %d", file, p.Title, p.ID)
			}
			ids[p.ID] = true
			checkTargets(t, file, p)
			if g := p.GridPos; g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
				t.Errorf("%s: panel %q is at %v", file, p.Title, g)
			}
			for _, other := range d.Panels[:i] {
				if overlap(p, other) || p.Title == other.Title {
					t.Errorf("%s: panels %q and %q have one title or one place", file, p.Title, other.Title)
				}
			}
		}
	}
}

func checkTargets(t *testing.T, file string, p panel) {
	t.Helper()
	want := datasource{"prometheus", "${datasource}"}
	if p.Type == "row" {
		return
	}
	if p.Datasource != want || len(p.Targets) == 0 {
		t.Errorf("%s: panel %q has the data source %v and %d queries", file, p.Title, p.Datasource, len(p.Targets))
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if q.Datasource != want || q.RefID == "" || refs[q.RefID] || q.Expr == "" {
			t.Errorf("%s: panel %q has the query %+v", file, p.Title, q)
		}
		refs[q.RefID] = true
	}
}

func overlap(a, b panel) bool {
	return a.GridPos.X < b.GridPos.X+b.GridPos.W && b.GridPos.X < a.GridPos.X+a.GridPos.W &&
		a.GridPos.Y < b.GridPos.Y+b.GridPos.H && b.GridPos.Y < a.GridPos.Y+a.GridPos.H
}

// TestDashboardsShowSomething verifies that each query of each panel yields data from metrics that were recorded from
// an operator, a scheduler, a console and an API server, and that docs/reference/metrics.md describes all metrics that
// the dashboards use.
func TestDashboardsShowSomething(t *testing.T) {
	documented := documentedMetrics(t)
	storage := promqltest.LoadedStorage(t, recorded(t))
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, 1e6)
	for file, d := range dashboards(t) {
		replace := []string{"$__rate_interval", "5m", "$__interval", "1m"}
		for _, v := range d.Templating.List[1:] {
			metric, _, _ := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ",")
			if !documented[metric] || v.AllValue == "" {
				t.Errorf("%s: variable %s is from %s and has %q for all", file, v.Name, metric, v.AllValue)
			}
			replace = append(replace, "$"+v.Name, v.AllValue)
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				expr := strings.NewReplacer(replace...).Replace(q.Expr)
				parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
				if err != nil {
					t.Errorf("%s: panel %q: %v", file, p.Title, err)
					continue
				}
				for _, metric := range metricsIn(parsed) {
					if !documented[metric] {
						t.Errorf("%s: panel %q uses %q, which docs/reference/metrics.md does not have", file, p.Title, metric)
					}
				}
				query, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(samples*interval))
				if err != nil {
					t.Fatal(err)
				}
				result := query.Exec(t.Context())
				if vector, err := result.Vector(); err != nil || len(vector) == 0 || len(result.Warnings) > 0 {
					t.Errorf("%s: panel %q: %s yields %v (%v, %v)", file, p.Title, expr, vector, err, result.Warnings)
				}
				query.Close()
			}
		}
	}
}

// samples is the number of simulated scrapes after the first one.
const samples = 90

// recorded returns the recorded metrics as a promql `load` command. Gauges keep their recorded value; counters and
// histograms grow linearly to theirs.
func recorded(t *testing.T) string {
	t.Helper()
	load := "load 1m\n"
	for _, program := range []string{"operator", "scheduler", "console", "apiserver"} {
		f, err := os.Open(filepath.Join("testdata", program+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		textParser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := textParser.TextToMetricFamilies(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(families)) {
			for _, m := range families[name].Metric {
				m.Label = append(m.Label, &dto.LabelPair{Name: new("instance"), Value: new(program)})
				load += seriesOf(name, m)
			}
		}
	}
	return load
}

// seriesOf returns the series of a metric as lines of a promql `load` command.
func seriesOf(name string, m *dto.Metric) string {
	growing := func(name string, value float64, labels ...string) string {
		return fmt.Sprintf("  %s 0+%gx%d\n", selector(name, m, labels...), value/samples, samples)
	}
	switch {
	case m.Histogram != nil:
		text := growing(name+"_count", float64(m.Histogram.GetSampleCount())) + growing(name+"_sum", m.Histogram.GetSampleSum())
		for _, b := range m.Histogram.Bucket {
			bound := fmt.Sprint(b.GetUpperBound())
			if math.IsInf(b.GetUpperBound(), 1) {
				bound = "+Inf"
			}
			text += growing(name+"_bucket", float64(b.GetCumulativeCount()), "le", bound)
		}
		return text
	case m.Counter != nil:
		return growing(name, m.Counter.GetValue())
	}
	return fmt.Sprintf("  %s %gx%d\n", selector(name, m), m.GetGauge().GetValue(), samples)
}

func selector(name string, m *dto.Metric, more ...string) string {
	var pairs []string
	for _, l := range m.Label {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(more) == 2 {
		pairs = append(pairs, fmt.Sprintf("%s=%q", more[0], more[1]))
	}
	return name + "{" + strings.Join(pairs, ",") + "}"
}
