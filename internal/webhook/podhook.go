package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

const (
	podHookName = "pods.scheduler.tensorstack.dev"
	// podHookEvery is the interval at which the configuration is checked even if no queue changes, because another
	// client may have changed the configuration.
	podHookEvery = 30 * time.Second
	// podHookRetry is the delay before the configuration is checked again after an error.
	podHookRetry = time.Second
	// podHookTimeout is the timeout of a call to the webhook, in seconds.
	podHookTimeout = 3
)

// podHook adds the webhook of pods to the webhook configuration while at least one queue limits the size of its pods,
// and removes the webhook of pods when no queue does. The API server calls the webhook only for pods that may be in
// such a queue, because one call costs the API server more than all other work for a new pod.
type podHook struct {
	// queues reads from a cache. direct reads from the API server, and writes.
	queues client.Reader
	direct client.Client
	// due holds an element if a queue has changed since the last check.
	due chan struct{}
}

// AddPodHook adds a podHook to a manager. The hook runs in every replica, and all replicas write the same
// configuration. The manager must be able to list and watch queues.
func AddPodHook(ctx context.Context, mgr ctrl.Manager) error {
	direct, err := directClient(mgr)
	if err != nil {
		return err
	}
	h := &podHook{queues: mgr.GetClient(), direct: direct, due: make(chan struct{}, 1)}
	informer, err := mgr.GetCache().GetInformer(ctx, &scheduling.Queue{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching queues: %w", err)
	}
	wake := func(any) {
		select {
		case h.due <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: wake, DeleteFunc: wake, UpdateFunc: func(_, o any) { wake(o) }}); err != nil {
		return fmt.Errorf("watching queues: %w", err)
	}
	return mgr.Add(h)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because the hook runs in every
// replica.
func (h *podHook) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It checks the configuration at once, at intervals, and whenever a queue changes,
// until ctx ends.
func (h *podHook) Start(ctx context.Context) error {
	for {
		wait := podHookEvery
		if err := h.ensure(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Cannot update the pod webhook configuration; trying again")
			wait = podHookRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-h.due:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// ensure updates the configuration to match the queues. It does nothing if there is no configuration.
func (h *podHook) ensure(ctx context.Context) error {
	var queues scheduling.QueueList
	if err := h.queues.List(ctx, &queues); err != nil {
		return fmt.Errorf("listing queues: %w", err)
	}
	var bounded []string
	for i := range queues.Items {
		if queues.Items[i].Spec.ResourceShapeProfile != "" {
			bounded = append(bounded, queues.Items[i].Name)
		}
	}
	slices.Sort(bounded)
	c := &admissionregistration.ValidatingWebhookConfiguration{}
	if err := h.direct.Get(ctx, client.ObjectKey{Name: configurationName}, c); err != nil {
		return client.IgnoreNotFound(err) // without a configuration no webhook is called
	}
	next := c.DeepCopy()
	if !setPodHook(next, bounded) {
		return nil
	}
	if err := h.direct.Patch(ctx, next, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the configuration of the webhook: %w", err)
	}
	log.FromContext(ctx).Info("Wrote the webhook of pods", "configuration", klog.KObj(next), "queues", bounded)
	return nil
}

// setPodHook adds the webhook of pods to a configuration or updates it. It removes the webhook of pods if bounded is
// empty, or if the configuration has no other webhook. bounded lists the queues that limit the size of their pods.
// setPodHook reports whether it has changed the configuration.
func setPodHook(c *admissionregistration.ValidatingWebhookConfiguration, bounded []string) (changed bool) {
	is := func(w admissionregistration.ValidatingWebhook) bool { return w.Name == podHookName }
	at := slices.IndexFunc(c.Webhooks, is)
	jobs := slices.IndexFunc(c.Webhooks, func(w admissionregistration.ValidatingWebhook) bool { return !is(w) })
	if len(bounded) == 0 || jobs < 0 {
		c.Webhooks = slices.DeleteFunc(c.Webhooks, is)
		return at >= 0
	}
	want := newPodHook(c.Webhooks[jobs].ClientConfig, bounded)
	switch {
	case at < 0:
		c.Webhooks = append(c.Webhooks, want)
	case len(c.Webhooks[at].MatchConditions) == len(want.MatchConditions) && equality.Semantic.DeepDerivative(want, c.Webhooks[at]):
		return false // the live webhook has more fields, because the API server has set defaults
	default:
		c.Webhooks[at] = want
	}
	return true
}

// newPodHook returns the webhook of pods. call is the client configuration of the webhook of jobs, whose path
// newPodHook replaces.
func newPodHook(call admissionregistration.WebhookClientConfig, bounded []string) admissionregistration.ValidatingWebhook {
	call = *call.DeepCopy()
	path := PodPath
	if call.Service != nil {
		call.Service.Path = &path
	}
	if call.URL != nil {
		url := strings.TrimSuffix(*call.URL, Path) + PodPath
		call.URL = &url
	}
	// Failures may be ignored, because the scheduler also checks the size of pods.
	ignore, none, timeout := admissionregistration.Ignore, admissionregistration.SideEffectClassNone, int32(podHookTimeout)
	namespaced := admissionregistration.NamespacedScope
	return admissionregistration.ValidatingWebhook{
		Name: podHookName, ClientConfig: call, FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &timeout,
		AdmissionReviewVersions: []string{"v1"},
		Rules: []admissionregistration.RuleWithOperations{{
			Operations: []admissionregistration.OperationType{admissionregistration.Create},
			Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: &namespaced},
		}},
		// Pods of jobs are excluded, because the webhook of jobs checks their size. The policy t9k-pods lets only the
		// operator set this label.
		ObjectSelector:  &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: batch.LabelJobName, Operator: metav1.LabelSelectorOpDoesNotExist}}},
		MatchConditions: []admissionregistration.MatchCondition{{Name: "of-a-queue-that-bounds-pods", Expression: inQueues(bounded)}},
	}
}

// inQueues returns a CEL expression that is true for pods that may be in one of the queues: pods that name a group,
// pods that name one of the queues and, if the default queue is one of them, pods of the t9k-scheduler that name
// neither a group nor a queue.
func inQueues(queues []string) string {
	return fmt.Sprintf("has(object.metadata.labels) && '%[1]s' in object.metadata.labels || "+
		"(has(object.metadata.labels) && '%[2]s' in object.metadata.labels && object.metadata.labels['%[2]s'] != '' ? object.metadata.labels['%[2]s'] : "+
		"has(object.spec.schedulerName) && object.spec.schedulerName == '%[3]s' ? '%[4]s' : '') in ['%[5]s']",
		scheduling.LabelGroupName, scheduling.LabelQueue, scheduling.SchedulerName, scheduling.DefaultQueue, strings.Join(queues, "','"))
}
