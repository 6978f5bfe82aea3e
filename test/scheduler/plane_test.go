package scheduler

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
	"tensorstack.dev/batch/test/kit/program"
)

// These are the settings of the scheduler on the shared control plane.
const (
	topologyLabel = "zone"
	sharedGrace   = "2s"
)

var withScheduler = []string{local.Etcd, local.APIServer, local.CRDs, local.Scheduler}

var (
	// shared is the control plane that most tests use in parallel.
	shared = plane.NewShared(func() (*plane.Plane, error) {
		p, err := plane.New(testenv.Options{Components: withScheduler, Settings: map[string][]string{
			local.Scheduler: {"topologyLabel: " + topologyLabel, "gangGracePeriod: " + sharedGrace}}})
		if err != nil {
			return nil, err
		}
		return p, startKWOK(p)
	})
	// quiet holds the control plane for tests that run alone on it. No other test causes events for its scheduler,
	// and a test may kill the scheduler.
	quiet = plane.NewPool(1, func() (*plane.Plane, error) { return plane.New(testenv.Options{Components: withScheduler}) })
)

// rules is the control plane for tests of rules that the API server itself enforces. No other tests write to it.
var rules = plane.NewShared(func() (*plane.Plane, error) {
	return plane.New(testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs}})
})

// teamLabels are the labels of the namespace team.
var teamLabels = labels.Set{"team": "a"}

// ruleStage returns a stage on the control plane rules, with the namespace team and the queues. It waits until the
// API server enforces who may use the queues, because the API server learns of each queue and of each binding of a
// policy at a different time. Queues with the same name must have the same spec in all tests.
func ruleStage(t *testing.T, queues map[string]scheduling.QueueSpec) *stage {
	t.Helper()
	t.Parallel()
	s := &stage{Test: &namespace.Test{T: t, Plane: rules.Get(t), Namespace: metav1.NamespaceDefault}}
	all := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: teamLabels}}}
	for name, spec := range queues {
		all = append(all, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	for _, o := range all {
		s.Must(client.IgnoreAlreadyExists(s.Client.Create(t.Context(), o)))
	}
	stranger := s.as("stranger")
	for name, spec := range queues {
		selector, err := metav1.LabelSelectorAsSelector(spec.NamespaceSelector)
		if s.Must(err); selector.Matches(teamLabels) {
			continue
		}
		for kind, o := range s.membersOf(name) {
			s.Await(fmt.Sprintf("a %s cannot enter queue %s", kind, name), func() error {
				return expect(stranger.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll), false, name)
			})
		}
	}
	return s
}

// ownPlanes limits the number of control planes that run at the same time in addition to the shared control planes.
var ownPlanes = make(chan struct{}, 2)

// newStage starts a control plane for a test that breaks it or needs other settings of the scheduler.
func newStage(t *testing.T, settings ...string) *stage {
	t.Helper()
	return newStageOf(t, testenv.Options{Components: withScheduler, Settings: map[string][]string{local.Scheduler: settings}})
}

// newStageOf starts a control plane with these options for one test.
func newStageOf(t *testing.T, o testenv.Options) *stage {
	t.Helper()
	ownPlanes <- struct{}{}
	t.Cleanup(func() { <-ownPlanes })
	s := &stage{Test: &namespace.Test{T: t, Plane: plane.Start(t, o), Namespace: metav1.NamespaceDefault}}
	t.Cleanup(s.showLog)
	return s
}

// showLog logs the end of the scheduler's log if the test has failed.
func (s *stage) showLog() {
	if !s.Failed() {
		return
	}
	if text, err := os.ReadFile(s.Env.LogFile(local.Scheduler)); err == nil {
		s.Logf("the scheduler's log ends with:\n%s", program.Tail(string(text)))
	}
}

// sharedStage returns a stage on the shared control plane with separate nodes, queues and a namespace. It lets the
// test run in parallel with others.
func sharedStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	return newPart(t, shared.Get(t))
}

// quietStage returns a stage on a control plane that no other test uses at the same time. It lets the test run in
// parallel with others.
func quietStage(t *testing.T) *stage {
	t.Helper()
	return newPart(t, quiet.Lend(t))
}

// newPart returns a stage on a control plane with separate nodes, queues and a namespace.
func newPart(t *testing.T, p *plane.Plane) *stage {
	t.Helper()
	s := &stage{Test: namespace.New(t, p)}
	s.prefix = s.Namespace + "-"
	t.Cleanup(s.showLog)
	t.Cleanup(func() { // so that the scheduler has fewer objects
		ctx, now := s.AfterTest(), client.GracePeriodSeconds(0)
		for _, o := range []client.Object{&corev1.Pod{}, &scheduling.PodGroup{}} {
			if err := p.Client.DeleteAllOf(ctx, o, client.InNamespace(s.Namespace), now); err != nil {
				t.Error(err)
			}
		}
		if err := p.Client.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{labelStage: s.Namespace}); err != nil {
			t.Error(err)
		}
	})
	return s
}

// labelStage is the label of a stage's nodes, with the stage's namespace as its value, on a control plane that stages
// share.
const labelStage = "stage"

// own returns the full name of a cluster-scoped object of the stage.
func (s *stage) own(name string) string { return s.prefix + name }

// nodeSelector returns a selector of the stage's nodes; nil if all nodes belong to the stage.
func (s *stage) nodeSelector() *metav1.LabelSelector {
	if s.prefix == "" {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{labelStage: s.Namespace}}
}
