package integration

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
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
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/testing/golden"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// TestMetricsAreServedAsDocumented scrapes the operator, the scheduler and the console of a cluster in which a job
// restarts, one gang preempts another, and a third one waits, while a user has a page of the console open. It verifies
// the values of the metrics and who may read them, that the programs serve exactly the t9k_ metrics of
// docs/reference/metrics.md, and that the other metrics of this page are served too.
func TestMetricsAreServedAsDocumented(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	w.awaitRightOf(schedulerUser, true, authorization.ResourceAttributes{Verb: "create", Group: coordination.GroupName, Resource: "leases", Namespace: config.Namespace})
	w.awaitRightOf(schedulerUser, true, authorization.ResourceAttributes{Verb: "watch", Group: scheduling.GroupVersion.Group, Resource: "podgroups"})
	w.revoke("tensorboards") // so that the controller of TensorBoards waits
	w.awaitRight(false, authorization.ResourceAttributes{Verb: "watch", Group: tensorboard.GroupVersion.Group, Resource: "tensorboards"})
	token, other := w.prometheusToken(), w.metricsToken("other", "")
	address := freeAddress(t)
	hook := freeAddress(t)
	w.pointWebhook(hook)
	w.Await("the API server cannot call the webhook", func() error {
		w.Must(w.try(jobs.New("probe", jobs.Role("w", 1, kubelet.Run))))
		text, err := w.Core.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err == nil && !strings.Contains(string(text), "\napiserver_admission_webhook_fail_open_count{") {
			err = errors.New("it does not say so")
		}
		return err
	})
	startOperator(t, w.serviceAccountKubeconfig("t9k-operator"), "metrics: {bindAddress: '"+address+"'}", "webhook: {bindAddress: '"+hook+"'}", electing)
	w.paperNodes("paper-0", "paper-1")
	scheduler := w.startScheduler()
	scheduler.awaitProbes(w)
	w.checkAccess(address, token, other, http.StatusUnauthorized)
	w.checkAccess(scheduler.address, token, other, http.StatusForbidden) // kube-scheduler accepts no anonymous user
	w.awaitWebhook()
	console := w.watchedConsole()
	w.checkAccess(console, token, other, http.StatusUnauthorized)

	w.Create(jobs.New("restarts", jobs.Restarting(jobs.Role("w", 1, kubelet.Exit, "1", "0"), batch.RestartOnFailure, 3)))
	w.Create(jobs.New("runs", jobs.Role("w", 2, kubelet.Run)))
	w.awaitPhase("restarts", batch.JobSucceeded)
	w.awaitPhase("runs", batch.JobRunning)
	low, high := w.paperQueue("metrics-low", 0), w.paperQueue("metrics-high", 10)
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: high}}
	w.Update(q, func() { q.Spec.Quota.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9500m")} })
	w.gangOf("first", low, 4, "2")
	w.awaitBound("first", 4)
	w.gangOf("important", high, 4, "2")
	w.awaitBound("important", 4)
	w.gangOf("waits", low, 2, "2")

	const ofJobs, runs, succeeds = `kind="GenericJob"`, `kind="GenericJob",phase="Running"`, `kind="GenericJob",phase="Succeeded"`
	all := map[string]*dto.MetricFamily{}
	w.Await("all metrics have the expected values", func() error {
		all = map[string]*dto.MetricFamily{}
		for _, from := range []string{address, scheduler.address, console} {
			if err := scrapeInto(all, from, token); err != nil {
				return err
			}
		}
		for _, want := range []struct {
			name, labels string
			least, most  float64
		}{
			{"t9k_jobs", runs, 1, 1},
			{"t9k_jobs", succeeds, 1, 1},
			{"t9k_jobs", `kind="PyTorchTrainingJob",phase="Failed"`, 0, 0},
			{"t9k_job_time_to_first_pod_seconds", ofJobs, 2, 2},
			{"t9k_job_time_to_running_seconds", ofJobs, 1, 2}, // 2 if the restarting job was seen running
			{"t9k_job_time_to_finish_seconds", succeeds, 1, 1},
			{"t9k_job_restarts_total", `cause="failure",kind="GenericJob",scope="Replica"`, 1, 1},
			{"t9k_queue_pods", `phase="Pending",queue="metrics-high"`, 4, 4}, // bound, on nodes without a kubelet
			{"t9k_queue_allocated", `queue="metrics-high",resource="cpu"`, 8, 8},
			{"t9k_queue_quota", `queue="metrics-high",resource="cpu"`, 9.5, 9.5},
			{"t9k_queue_pending_groups", `queue="metrics-low"`, 1, 1},
			{"t9k_queue_pending_groups", `queue="metrics-high"`, 0, 0},
			{"t9k_api_writes_total", `resource="pods",result="ok",verb="create"`, 4, 4},
			{"t9k_controller_waiting", `controller="tensorboards",resource="TensorBoard.tensorstack.dev"`, 1, 1},
			{"t9k_job_oldest_without_pods_seconds", ofJobs, 0, 0},
			{"t9k_queue_oldest_pending_group_seconds", `queue="metrics-low"`, 1e-3, 1e4},
			{"t9k_queue_oldest_pending_group_seconds", `queue="metrics-high"`, 0, 0},
			{"t9k_webhook_certificate_expiry_timestamp_seconds", "", float64(time.Now().Unix()), 1e12},
			{"t9k_scheduler_planner_busy_seconds", "", 0, 1e4},
			{"t9k_scheduler_round_seconds", "", 3, 1e6},
			{"t9k_scheduler_attempts_total", `result="bound"`, 2, 1e6},
			{"t9k_scheduler_evicted_pods_total", `cause="preemption"`, 4, 8},
			{"t9k_scheduler_group_wait_seconds", `queue="metrics-high"`, 1, 1},
			{"t9k_console_request_seconds", `code="200",page="jobs"`, 1, 1},
			{"t9k_console_request_seconds", `code="401",page="queues"`, 1, 1},
			{"t9k_console_viewers", `page="jobs"`, 1, 1},
			{"t9k_console_reviews_total", `resource="tokenreviews",result="ok"`, 2, 1e4}, // including the forged token
			{"t9k_console_reviews_total", `resource="subjectaccessreviews",result="ok"`, 1, 1e4},
			{"t9k_console_archive_writes_total", `result="ok"`, 1, 1e6},
			{"t9k_console_archive_lag_seconds", "", 0, 60},
			{"t9k_console_archive_size_bytes", "", 1e4, 1e9},
		} {
			if got, ok := valueOf(all, want.name, want.labels); !ok || got < want.least || got > want.most {
				return fmt.Errorf("%s{%s} is %v (there: %t), want %v to %v", want.name, want.labels, got, ok, want.least, want.most)
			}
		}
		return nil
	})
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	w.Must(err)
	var documented, served []string
	others := w.scrapes(map[string]string{"operator": address, "scheduler": scheduler.address, "console": console}, token, string(page))
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		switch name := m[1]; {
		case strings.HasPrefix(name, "t9k_"):
			documented = append(documented, name)
		case !others[name]:
			t.Errorf("%s, which is a metric of others, is not served", name)
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "t9k_") {
			served = append(served, name)
		}
	}
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("documented are\n%v\nand served\n%v", documented, served)
	}
}

// watchedConsole starts a console with an archive and metrics. A user has its first page open, and a request with a
// forged token is refused. It returns the address of the metrics.
func (w *world) watchedConsole() string {
	w.Helper()
	address := freeAddress(w.T)
	i := w.startConsole(consoleArchive(filepath.Join(w.TempDir(), "archive.db")), "metrics: {bindAddress: '"+address+"'}")
	viewer := w.person(i, "viewer", look...)
	viewer.page("/")
	viewer.listen("/")
	if code, body := (&person{i, "nobody", "forged"}).call(http.MethodGet, "/queues", nil); code != http.StatusUnauthorized {
		w.Errorf("a forged token: %d %s", code, body)
	}
	return address
}

// scrapes returns the names of the metrics that the API server and the programs serve, whose addresses are given by
// name. With -update, it records the metrics that have a section in page, for the tests of alerts and dashboards.
func (w *world) scrapes(addresses map[string]string, token, page string) map[string]bool {
	w.Helper()
	text, err := w.Core.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(w.Context())
	w.Must(err)
	served := map[string]map[string]*dto.MetricFamily{"apiserver": {}}
	w.Must(parseInto(served["apiserver"], string(text)))
	for program, address := range addresses {
		served[program] = map[string]*dto.MetricFamily{}
		w.Must(scrapeInto(served[program], address, token))
	}
	names := map[string]bool{}
	for program, families := range served {
		var recorded strings.Builder
		for _, name := range slices.Sorted(maps.Keys(families)) {
			names[name] = true
			if strings.Contains(page, "\n### "+name+"\n") && (program != "apiserver" || strings.HasPrefix(name, program)) {
				_, err := expfmt.MetricFamilyToText(&recorded, families[name])
				w.Must(err)
			}
		}
		golden.Record(w, "../../tools/monitoring/testdata/"+program+".txt", recorded.String())
	}
	return names
}

// checkAccess verifies that the user of token may read the metrics at an address, and that the user of other and
// unknown users may not. anonymous is the expected status for requests without a token.
func (w *world) checkAccess(address, token, other string, anonymous int) {
	w.Helper()
	w.Await("the metrics are served", func() error {
		code, _, err := fetchMetrics(address, token)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the answer is %d", code)
		}
		return err
	})
	for _, test := range []struct {
		token string
		want  int
	}{{"", anonymous}, {other, http.StatusForbidden}, {"forged", http.StatusUnauthorized}} {
		if code, _, err := fetchMetrics(address, test.token); err != nil || code != test.want {
			w.Errorf("the answer is %d (%v), want %d", code, err, test.want)
		}
	}
}

// prometheusToken installs the chart's ServiceAccount for Prometheus, and returns its token once it may read metrics.
func (w *world) prometheusToken() string {
	w.Helper()
	const name = "t9k-metrics-reader"
	for _, o := range renderedObjects(w.T, filepath.Join(renderedCharts, "monitoring.golden.yaml")) {
		if o.GetName() == name {
			w.Must(w.applyRendered(o))
			w.deleteLater(o)
		}
	}
	w.awaitMetricsRight("system:serviceaccount:" + config.Namespace + ":" + name)
	secret := &corev1.Secret{}
	w.Await("the Secret has a token", func() error {
		w.Must(w.Client.Get(w.Context(), types.NamespacedName{Namespace: config.Namespace, Name: name}, secret))
		if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.New("it has none")
		}
		return nil
	})
	return string(secret.Data[corev1.ServiceAccountTokenKey])
}

// awaitMetricsRight waits until a user may read metrics.
func (w *world) awaitMetricsRight(user string) {
	w.Helper()
	w.Await("the role is in force", func() error {
		review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: user,
			NonResourceAttributes: &authorization.NonResourceAttributes{Path: "/metrics", Verb: "get"}}}
		w.Must(w.Client.Create(w.Context(), review))
		if !review.Status.Allowed {
			return fmt.Errorf("it is not: %s", review.Status.Reason)
		}
		return nil
	})
}

// metricsToken returns a token of a new ServiceAccount. If role is not empty, the ServiceAccount has this ClusterRole.
func (w *world) metricsToken(name, role string) string {
	w.Helper()
	w.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if role != "" {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Namespace, Name: name}}}
		w.Must(w.Client.Create(w.Context(), b))
		w.deleteLater(b)
		w.awaitMetricsRight("system:serviceaccount:" + w.Namespace + ":" + name)
	}
	request, err := w.Core.CoreV1().ServiceAccounts(w.Namespace).CreateToken(w.Context(), name, &authentication.TokenRequest{}, metav1.CreateOptions{})
	w.Must(err)
	return request.Status.Token
}

// fetchMetrics gets /metrics from an address. It sends the token unless that is empty, and trusts any certificate,
// because each program creates its own.
func fetchMetrics(address, token string) (code int, text string, err error) {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	request, err := http.NewRequest(http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// scrapeInto adds the metrics at an address to all, by name. They replace metrics of the same name.
func scrapeInto(all map[string]*dto.MetricFamily, address, token string) error {
	code, text, err := fetchMetrics(address, token)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("the answer is %d: %s", code, text)
	}
	return parseInto(all, text)
}

// parseInto adds the metrics of a text to all, by name. They replace metrics of the same name.
func parseInto(all map[string]*dto.MetricFamily, text string) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return err
	}
	for name, f := range families {
		all[name] = f
	}
	return nil
}

// valueOf returns the value of the metric with these labels, and whether there is such a metric. labels has the form
// NAME="VALUE",... and is sorted by name. The value of a histogram is its number of observations.
func valueOf(all map[string]*dto.MetricFamily, name, labels string) (float64, bool) {
	f := all[name]
	if f == nil {
		return 0, false
	}
	for _, m := range f.Metric {
		var parts []string
		for _, l := range m.Label {
			parts = append(parts, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		slices.Sort(parts)
		if strings.Join(parts, ",") == labels {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
		}
	}
	return 0, false
}
