package monitoring

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	root     = "../.."
	ruleDir  = root + "/charts/t9k-batch/files/rules"
	interval = time.Minute // between two scrapes and two evaluations
)

// healthy are the series of a cluster in which no alert fires, with their values at each minute. They include unhealthy
// series of other programs, because these must not fire our alerts.
var healthy = map[string]string{
	`leader_election_master_status{name="t9k-operator",instance="op-0"}`:  `0x800`,
	`leader_election_master_status{name="t9k-operator",instance="op-1"}`:  `1x800`,
	`leader_election_master_status{name="t9k-scheduler",instance="sc-0"}`: `1x800`,
	`leader_election_master_status{name="t9k-scheduler",instance="sc-1"}`: `0x800`,
	`leader_election_master_status{name="other",instance="other"}`:        `0x800`,

	`controller_runtime_reconcile_total{controller="genericjobs",instance="op-1",result="success"}`: `0+60x800`,
	`controller_runtime_reconcile_total{controller="genericjobs",instance="op-1",result="error"}`:   `0+1x800`,
	`controller_runtime_reconcile_errors_total{controller="genericjobs",instance="op-1"}`:           `0+1x800`,
	`controller_runtime_reconcile_total{controller="others",instance="other",result="error"}`:       `0+60x800`,
	`controller_runtime_reconcile_errors_total{controller="others",instance="other"}`:               `0+60x800`,
	`workqueue_depth{name="genericjobs",priority="0",instance="op-1"}`:                              `200x800`,
	`workqueue_depth{name="others",instance="other"}`:                                               `200+10x800`,

	`t9k_api_writes_total{resource="pods",result="ok",verb="create",instance="op-1"}`:      `0+100x800`,
	`t9k_api_writes_total{resource="pods",result="refused",verb="create",instance="op-1"}`: `0+10x800`,
	`t9k_api_writes_total{resource="pods",result="failed",verb="create",instance="op-1"}`:  `0+1x800`,

	`apiserver_admission_webhook_fail_open_count{name="other.example.com",type="validating"}`:                                   `0+10x800`,
	`apiserver_admission_webhook_fail_open_count{name="jobs.batch.tensorstack.dev",type="validating"}`:                          `7x800`,
	`apiserver_admission_webhook_rejection_count{name="jobs.batch.tensorstack.dev",rejection_code="403",error_type="no_error"}`: `0+9x800`,
	`t9k_webhook_certificate_expiry_timestamp_seconds{instance="op-1"}`:                                                         `7776000x800`,

	`t9k_job_oldest_without_pods_seconds{kind="GenericJob",instance="op-1"}`: `2x800`,
	`t9k_jobs{kind="GenericJob",phase="Running",instance="op-1"}`:            `12x800`,
	`t9k_job_restarts_total{kind="GenericJob",instance="op-1"}`:              `0+1.5x800`,

	`t9k_scheduler_planner_busy_seconds{instance="sc-0"}`:                  `0 1 0 2x800`,
	`t9k_scheduler_round_seconds_bucket{instance="sc-0",le="0.25"}`:        `0+100x800`,
	`t9k_scheduler_round_seconds_bucket{instance="sc-0",le="4"}`:           `0+100x800`,
	`t9k_scheduler_round_seconds_bucket{instance="sc-0",le="16"}`:          `0+100x800`,
	`t9k_scheduler_round_seconds_bucket{instance="sc-0",le="+Inf"}`:        `0+100x800`,
	`t9k_scheduler_attempts_total{instance="sc-0",result="bound"}`:         `0+10x800`,
	`t9k_scheduler_attempts_total{instance="sc-0",result="failed"}`:        `0+3x800`,
	`t9k_queue_oldest_pending_group_seconds{queue="a",instance="op-1"}`:    `600x800`,
	`t9k_queue_pending_groups{queue="a",instance="op-1"}`:                  `1x800`,
	`t9k_queue_pending_groups{queue="full",instance="op-1"}`:               `0x800`,
	`t9k_queue_allocated{queue="a",resource="cpu",instance="op-1"}`:        `9x800`,
	`t9k_queue_allocated{queue="full",resource="cpu",instance="op-1"}`:     `10x800`,
	`t9k_queue_quota{queue="a",resource="cpu",instance="op-1"}`:            `10x800`,
	`t9k_queue_quota{queue="full",resource="cpu",instance="op-1"}`:         `10x800`,
	`t9k_queue_quota{queue="a",resource="nvidia.com/gpu",instance="op-1"}`: `0x800`,

	`t9k_console_archive_writes_total{instance="co-0",result="ok"}`:     `0+30x800`,
	`t9k_console_archive_writes_total{instance="co-0",result="failed"}`: `0+1x800`,
	`t9k_console_archive_lag_seconds{instance="co-0"}`:                  `0 0 2 70 3x800`,
	`t9k_console_archive_writes_total{instance="co-1",result="ok"}`:     `0+20x800`,
	`t9k_console_archive_lag_seconds{instance="co-1"}`:                  `1x800`,
}

const gone = "" // the values of a series that does not exist

// TestAlerts verifies that each alert fires alone, at the expected minute and not earlier.
func TestAlerts(t *testing.T) {
	tests := map[string]struct {
		// series replace those of a healthy cluster with the same name and labels.
		series map[string]string
		// fires is the minute of the first evaluation in which the alert fires.
		fires int
		// label is a label of the alert; empty if no label is checked.
		label string
	}{
		"T9kOperatorAbsent": {map[string]string{
			`leader_election_master_status{name="t9k-operator",instance="op-0"}`: gone,
			`leader_election_master_status{name="t9k-operator",instance="op-1"}`: `1x10 stale`}, 11 + 5, `name="t9k-operator"`},
		"T9kOperatorWithoutLeader": {map[string]string{
			`leader_election_master_status{name="t9k-operator",instance="op-1"}`: `1x10 0x30`}, 11 + 5, ""},
		"T9kControllerWaiting": {map[string]string{
			`t9k_controller_waiting{controller="tensorboards",resource="TensorBoard.tensorstack.dev",instance="op-1"}`: `_x4 1x30`}, 4 + 10, `controller="tensorboards"`},
		"T9kReconcileErrors": {map[string]string{
			`controller_runtime_reconcile_errors_total{controller="genericjobs",instance="op-1"}`: `0x20 0+30x60`}, 26 + 15, `controller="genericjobs"`},
		"T9kAPIWritesFailing": {map[string]string{
			`t9k_api_writes_total{resource="pods",result="unanswered",verb="create",instance="op-1"}`: `0x20 0+10x60`}, 26 + 15, ""},
		"T9kAPIWritesRefused": {map[string]string{
			`t9k_api_writes_total{resource="services",result="refused",verb="create",instance="op-1"}`: `0x20 0+1x60`}, 22 + 30, `resource="services"`},
		"T9kWebhookFailing": {map[string]string{
			`apiserver_admission_webhook_fail_open_count{name="jobs.batch.tensorstack.dev",type="validating"}`: `7x20 8+1x60`}, 21 + 10, `name="jobs.batch.tensorstack.dev"`},
		"T9kWebhookCertificateExpires": {map[string]string{
			`t9k_webhook_certificate_expiry_timestamp_seconds{instance="op-1"}`: `605400x200`}, 11 + 60, ""},
		"T9kWorkQueueGrowing": {map[string]string{
			`workqueue_depth{name="genericjobs",priority="0",instance="op-1"}`: `200x20 201+10x60`}, 21 + 30, `name="genericjobs"`},
		"T9kJobsNotStarted": {map[string]string{
			`t9k_job_oldest_without_pods_seconds{kind="GenericJob",instance="op-1"}`: `0x5 0+60x60`}, 12 + 5, `kind="GenericJob"`},
		"T9kRestartStorm": {map[string]string{
			`t9k_job_restarts_total{kind="GenericJob",instance="op-1"}`: `0x20 0+4x60`}, 28 + 15, ""},
		"T9kSchedulerAbsent": {map[string]string{
			`leader_election_master_status{name="t9k-scheduler",instance="sc-0"}`: `1x10 stale`,
			`leader_election_master_status{name="t9k-scheduler",instance="sc-1"}`: gone}, 11 + 5, `name="t9k-scheduler"`},
		"T9kSchedulerWithoutLeader": {map[string]string{
			`leader_election_master_status{name="t9k-scheduler",instance="sc-0"}`: `1x10 0x30`}, 11 + 5, ""},
		"T9kPlannerStuck": {map[string]string{
			`t9k_scheduler_planner_busy_seconds{instance="sc-0"}`: `0x5 0+60x60`}, 8 + 2, `instance="sc-0"`},
		"T9kSchedulerRoundsSlow": {map[string]string{
			`t9k_scheduler_round_seconds_bucket{instance="sc-0",le="0.25"}`: `0+100x20 2000+0x60`,
			`t9k_scheduler_round_seconds_bucket{instance="sc-0",le="4"}`:    `0+100x20 2000+0x60`}, 21 + 15, ""},
		"T9kSchedulingFails": {map[string]string{
			`t9k_scheduler_attempts_total{instance="sc-0",result="failed"}`: `0x20 0+40x60`}, 25 + 15, ""},
		"T9kGroupWaitsLong": {map[string]string{
			`t9k_queue_oldest_pending_group_seconds{queue="a",instance="op-1"}`: `0+60x600`}, 241 + 10, `queue="a"`},
		"T9kQueueFull": {map[string]string{
			`t9k_queue_allocated{queue="a",resource="cpu",instance="op-1"}`: `9x9 10x800`}, 10 + 720, `queue="a"`},
		"T9kArchiveCannotWrite": {map[string]string{
			`t9k_console_archive_writes_total{instance="co-0",result="ok"}`:     `0+30x20 600x60`,
			`t9k_console_archive_writes_total{instance="co-0",result="failed"}`: `0+12x80`,
			`t9k_console_archive_lag_seconds{instance="co-0"}`:                  `0x20 0+60x60`}, 24 + 10, `instance="co-0"`},
		"T9kArchiveLags": {map[string]string{
			`t9k_console_archive_lag_seconds{instance="co-1"}`: `0x20 0+10x60`}, 28 + 10, `instance="co-1"`},
	}
	if names := slices.Sorted(maps.Keys(alerts(t))); !slices.Equal(names, slices.Sorted(maps.Keys(tests))) {
		t.Errorf("the alerts are %v", names)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			firing := evaluate(t, test.series, test.fires, func(minute int, firing []string) {
				if len(firing) > 0 {
					t.Errorf("at minute %d, %v fire", minute, firing)
				}
			})
			if len(firing) != 1 || !strings.HasPrefix(firing[0], name+"{") || !strings.Contains(firing[0], test.label) {
				t.Errorf("at minute %d, these fire: %v", test.fires, firing)
			}
		})
	}
}

func TestNoAlertFiresInHealth(t *testing.T) {
	if firing := evaluate(t, nil, 240, func(int, []string) {}); len(firing) > 0 {
		t.Errorf("%v fire", firing)
	}
}

// evaluate evaluates all rules at each minute up to last, and returns the alerts that fire at last. It calls each with
// the firing alerts of every earlier minute. It fails the test if an annotation is empty or its template cannot be
// expanded.
func evaluate(t *testing.T, series map[string]string, last int, each func(minute int, firing []string)) (firing []string) {
	t.Helper()
	all := maps.Clone(healthy)
	maps.Copy(all, series)
	load := "load 1m\n"
	for name, values := range all {
		if values != gone {
			load += "  " + name + " " + values + "\n"
		}
	}
	storage := promqltest.LoadedStorage(t, load)
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, 1e6)
	groups := groupsOf(t, &rules.ManagerOptions{QueryFunc: rules.EngineQueryFunc(engine, storage), Appendable: storage, Queryable: storage,
		Context: t.Context(), NotifyFunc: func(context.Context, string, ...*rules.Alert) {}})
	for minute := 0; minute <= last; minute++ {
		firing = nil
		for _, g := range groups {
			g.Eval(t.Context(), time.Unix(0, 0).Add(time.Duration(minute)*interval).UTC())
			for _, r := range g.AlertingRules() {
				if r.LastError() != nil {
					t.Fatalf("%s: %v", r.Name(), r.LastError())
				}
				for _, a := range r.ActiveAlerts() {
					a.Annotations.Range(func(l labels.Label) {
						if l.Value == "" || strings.Contains(l.Value, "error") && strings.Contains(l.Value, "template") || strings.Contains(l.Value, "{{") {
							t.Errorf("%s: the annotation %s is %q", r.Name(), l.Name, l.Value)
						}
					})
					if a.State == rules.StateFiring {
						firing = append(firing, r.Name()+a.Labels.String())
					}
				}
			}
		}
		if minute < last {
			each(minute, firing)
		}
	}
	return firing
}

// groupsOf loads the groups of all files of rules.
func groupsOf(t *testing.T, opts *rules.ManagerOptions) []*rules.Group {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(ruleDir, "*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("the files of rules are %v (%v)", files, err)
	}
	groups, errs := rules.NewManager(opts).LoadGroups(interval, labels.EmptyLabels(), "", nil, false, files...)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return slices.Collect(maps.Values(groups))
}

// alerts returns the alerts by name.
func alerts(t *testing.T) map[string]*rules.AlertingRule {
	t.Helper()
	all := map[string]*rules.AlertingRule{}
	for _, g := range groupsOf(t, &rules.ManagerOptions{}) {
		for _, r := range g.AlertingRules() {
			if all[r.Name()] != nil {
				t.Errorf("two alerts are called %s", r.Name())
			}
			all[r.Name()] = r
		}
	}
	return all
}

// metricsIn returns the names of the metrics that an expression selects.
func metricsIn(e parser.Expr) []string {
	var names []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names
}

// TestAlertsAreComplete verifies the labels and annotations of each alert, that its metrics exist, and that the docs
// have a section about it.
func TestAlertsAreComplete(t *testing.T) {
	documented := documentedMetrics(t)
	sections := sectionsOf(t, filepath.Join(root, "docs", "alerts.md"))
	for name, r := range alerts(t) {
		for _, metric := range metricsIn(r.Query()) {
			if !documented[metric] {
				t.Errorf("%s uses %q, which docs/reference/metrics.md does not have", name, metric)
			}
		}
		severity := r.Labels().Get("severity")
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) || r.HoldDuration() == 0 {
			t.Errorf("%s has severity %q and fires after %s", name, severity, r.HoldDuration())
		}
		if r.Annotations().Get("summary") == "" || r.Annotations().Get("description") == "" {
			t.Errorf("%s has no summary or no description", name)
		}
		first := fmt.Sprintf("Severity: %s. Fires after %s.", severity, model.Duration(r.HoldDuration()))
		text, ok := sections[name]
		if !ok || !strings.HasPrefix(text, first) || !strings.Contains(text, "\n\nLook at ") {
			t.Errorf("docs/alerts.md has no section %s that begins with %q and says what to look at: %q", name, first, text)
		}
		delete(sections, name)
	}
	if len(sections) > 0 {
		t.Errorf("docs/alerts.md has sections of alerts that do not exist: %v", slices.Sorted(maps.Keys(sections)))
	}
}
