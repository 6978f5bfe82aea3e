package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"tensorstack.dev/batch/internal/metrics"
)

// recheck is the interval at which the starter checks again whether a waiting part can start.
const recheck = 5 * time.Second

// waiting is the metric of the parts that wait, with the kind of object that is missing or forbidden. The kind is empty
// if a part waits for another reason.
var waiting = metrics.ControllerWaiting.Gauge()

func init() { ctrlmetrics.Registry.MustRegister(waiting) }

// part is a controller, or another part of the operator, that can start only when certain kinds can be read.
type part struct {
	name string
	// reads lists the kinds of objects that the part lists and watches.
	reads []client.Object
	// add adds the part to a running manager. The starter calls add again after an error, so add should fail before it
	// has added anything.
	add func(context.Context) error
}

// starter adds each part to the manager as soon as the part's kinds exist and can be read. The parts do not wait for
// each other. A part must not start earlier, because the informer of a missing kind never syncs, and the manager would
// wait for it forever.
type starter struct {
	mgr   ctrl.Manager
	parts []part
	// everywhere makes the parts run in every replica of the operator and not only in the leader.
	everywhere bool

	mu sync.Mutex
	// problems maps the name of each part to the reason why the part waits. The reason is empty if the part has started
	// or was not tried yet, for example because this replica does not lead.
	problems map[string]string
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *starter) NeedLeaderElection() bool { return !s.everywhere }

// addTo adds the starter to its manager, and a check for each part to ready.
func (s *starter) addTo(ready *probes) error {
	s.problems = map[string]string{}
	for _, p := range s.parts {
		ready.add(p.name, func(*http.Request) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if problem := s.problems[p.name]; problem != "" {
				return fmt.Errorf("%s has not started: %s", p.name, problem)
			}
			return nil
		})
	}
	if err := s.mgr.Add(s); err != nil {
		return fmt.Errorf("adding the start of the controllers: %w", err)
	}
	return nil
}

// Start implements manager.Runnable. It adds the parts, and returns when all have started or ctx ends.
func (s *starter) Start(ctx context.Context) error {
	log := s.mgr.GetLogger()
	left := slices.Clone(s.parts)
	for {
		checked := map[schema.GroupVersionKind]string{}
		left = slices.DeleteFunc(left, func(p part) bool { return s.try(ctx, log, p, checked) })
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(recheck):
		}
	}
}

// try adds a part if the part's kinds can be read, and reports whether it has. Otherwise it records the problem, also
// in the metric waiting, and logs the problem if it is new. checked caches the problem of each kind for one round of
// tries.
func (s *starter) try(ctx context.Context, log logr.Logger, p part, checked map[schema.GroupVersionKind]string) bool {
	waiting.DeletePartialMatch(prometheus.Labels{"controller": p.name})
	var problems []string
	for _, o := range p.reads {
		gvk, problem := s.problem(ctx, o, checked)
		if problem != "" {
			problems = append(problems, problem)
			waiting.WithLabelValues(p.name, gvk.Kind+"."+gvk.Group).Set(1)
		}
	}
	if len(problems) == 0 {
		if err := p.add(ctx); err != nil {
			problems = append(problems, err.Error())
			waiting.WithLabelValues(p.name, "").Set(1)
		}
	}
	problem := strings.Join(problems, "; ")
	s.mu.Lock()
	known := s.problems[p.name]
	s.problems[p.name] = problem
	s.mu.Unlock()
	switch {
	case problem != "" && problem != known:
		log.Error(errors.New(problem), "Cannot start a controller; the others run without it", "controller", p.name)
	case problem == "" && known != "":
		log.Info("Started a controller that had to wait", "controller", p.name)
	}
	return problem == ""
}

// problem returns the kind of an object, and the reason why objects of this kind cannot be listed and watched; empty if
// they can.
func (s *starter) problem(ctx context.Context, o client.Object, checked map[schema.GroupVersionKind]string) (schema.GroupVersionKind, string) {
	gvk, err := apiutil.GVKForObject(o, s.mgr.GetScheme())
	if err != nil {
		return gvk, err.Error()
	}
	problem, ok := checked[gvk]
	if !ok {
		problem = s.find(ctx, gvk)
		checked[gvk] = problem
	}
	return gvk, problem
}

// find returns the reason why objects of a kind cannot be listed and watched; empty if they can.
func (s *starter) find(ctx context.Context, gvk schema.GroupVersionKind) string {
	mapping, err := s.mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return fmt.Sprintf("the API server does not know %s: apply its CRD", gvk)
	}
	if err != nil {
		return fmt.Sprintf("looking for %s: %v", gvk, err)
	}
	var missing []string
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: gvk.Group, Version: gvk.Version, Resource: mapping.Resource.Resource, Verb: verb}}}
		if err := s.mgr.GetClient().Create(ctx, review); err != nil {
			return fmt.Sprintf("asking for the right to %s %s: %v", verb, mapping.Resource.GroupResource(), err)
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("the operator may not %s %s: grant it that, as config/rbac does", strings.Join(missing, " and "), mapping.Resource.GroupResource())
	}
	return ""
}
