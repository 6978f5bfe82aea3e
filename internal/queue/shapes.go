package queue

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=resource-shapes,namespace=t9k-system,verbs=list;watch

const profilesName = scheduling.ResourceShapesNamespace + "/" + scheduling.ResourceShapes

// Shapes looks up the largest pod that a queue accepts. Every replica of the operator has its own Shapes, because every
// replica answers admission requests.
type Shapes struct {
	objects client.Reader
	cache   cache.Cache
	// profiles is a cache that holds only the ConfigMap of the profiles.
	profiles cache.Cache
}

// everywhere is a cache that runs in every replica of the operator.
type everywhere struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// NewShapes returns a lookup and adds its cache of profiles to the manager, which runs the cache.
func NewShapes(mgr ctrl.Manager) (*Shapes, error) {
	only := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", scheduling.ResourceShapes)}
	profiles, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{scheduling.ResourceShapesNamespace: only}, Transform: cache.TransformStripManagedFields()}}})
	if err != nil {
		return nil, fmt.Errorf("making a cache of resource shapes: %w", err)
	}
	if err := mgr.Add(everywhere{profiles}); err != nil {
		return nil, fmt.Errorf("adding the cache of resource shapes: %w", err)
	}
	return &Shapes{objects: mgr.GetClient(), cache: mgr.GetCache(), profiles: profiles}, nil
}

// Watch starts the informers of queues, PodGroups and profiles without waiting for them to sync, so that they are ready
// before the first admission request.
func (s *Shapes) Watch(ctx context.Context) error {
	later := cache.BlockUntilSynced(false)
	for _, c := range []struct {
		cache cache.Cache
		of    client.Object
	}{{s.profiles, &corev1.ConfigMap{}}, {s.cache, &scheduling.Queue{}}, {s.cache, &scheduling.PodGroup{}}} {
		if _, err := c.cache.GetInformer(ctx, c.of, later); err != nil {
			return fmt.Errorf("watching %T: %w", c.of, err)
		}
	}
	return nil
}

// Shape is the largest pod that a queue accepts.
type Shape struct {
	Queue, Profile string
	// Requests are the largest requests by resource. Other resources have no limit. Requests is nil if the profile does
	// not exist or cannot be read.
	Requests corev1.ResourceList
	// Reason is the reason of the queue's condition ResourceShapeKnown. Problem is why the profile is not known, for
	// the message of the condition; it is empty if the profile has been read.
	Reason, Problem string
}

// OfQueue returns the shape of a queue, or nil if the queue has no profile or does not exist.
func (s *Shapes) OfQueue(ctx context.Context, name string) (*Shape, error) {
	q := &scheduling.Queue{}
	if err := s.objects.Get(ctx, client.ObjectKey{Name: name}, q); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading queue %s: %w", name, err)
	}
	return s.of(ctx, q)
}

// OfPod returns the shape of the queue in which a pod with these labels would wait: the queue of its group, or else the
// queue that it names, or else the default queue. It returns nil if the queue has no profile or does not exist, or if
// the pod names no queue and its group does not exist yet.
func (s *Shapes) OfPod(ctx context.Context, namespace string, labels map[string]string) (*Shape, error) {
	queue := labels[scheduling.LabelQueue]
	if name := labels[scheduling.LabelGroupName]; name != "" {
		g := &scheduling.PodGroup{}
		err := s.objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, g)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading group %s/%s: %w", namespace, name, err)
		}
		if err == nil {
			queue = g.Spec.Queue
		} else if queue == "" {
			return nil, nil
		}
	}
	if queue == "" {
		queue = scheduling.DefaultQueue
	}
	return s.OfQueue(ctx, queue)
}

// of returns the shape of a queue, or nil if the queue has no profile. A profile that is missing or cannot be read is
// not an error, but a Problem of the shape.
func (s *Shapes) of(ctx context.Context, q *scheduling.Queue) (*Shape, error) {
	profile := q.Spec.ResourceShapeProfile
	if profile == "" {
		return nil, nil
	}
	shape := &Shape{Queue: q.Name, Profile: profile, Reason: scheduling.ReasonShapeFound}
	profiles := &corev1.ConfigMap{}
	err := s.profiles.Get(ctx, client.ObjectKey{Namespace: scheduling.ResourceShapesNamespace, Name: scheduling.ResourceShapes}, profiles)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", profilesName, err)
	}
	text, ok := profiles.Data[profile]
	if !ok {
		shape.Reason = scheduling.ReasonShapeNotFound
		shape.Problem = fmt.Sprintf("the ConfigMap %s has no key %s, which is the queue's resourceShapeProfile: ask an administrator to add it", profilesName, profile)
		return shape, nil
	}
	if shape.Requests, err = ReadShape(text); err != nil {
		shape.Reason = scheduling.ReasonShapeInvalid
		shape.Problem = fmt.Sprintf("the key %s of the ConfigMap %s, which is the queue's resourceShapeProfile, cannot be read: %v: ask an administrator to correct it", profile, profilesName, err)
	}
	return shape, nil
}

// Refusal returns why a pod may not start in the queue and what to do about it; empty if it may start. A nil shape
// allows all pods. pod may be nil if the shape has a Problem.
func (s *Shape) Refusal(pod *corev1.PodSpec) string {
	if s == nil {
		return ""
	}
	if s.Problem != "" {
		return fmt.Sprintf("queue %s takes no pods, because their largest size is not known: %s, or use another queue", s.Queue, s.Problem)
	}
	excess := over(observed.Requests(pod), s.Requests)
	if len(excess) == 0 {
		return ""
	}
	return fmt.Sprintf("a pod is too large for queue %s, whose resourceShapeProfile is %s: %s: request less, or use another queue",
		s.Queue, s.Profile, strings.Join(excess, "; "))
}
