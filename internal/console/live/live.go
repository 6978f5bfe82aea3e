// Package live caches the cluster's objects for the console's pages and notifies the pages of changes. A View restricts
// the cache to the rights of one user. The package neither computes view models nor renders. Start reading at Start.
package live

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/kinds"
)

// Cache holds the objects of a cluster. The objects are shared and must not be modified.
type Cache struct {
	jobs                        []*source // by the index of the kind in kinds.All
	events                      []*source // about jobs, by the index of the kind in kinds.All
	warnings                    *source   // events of type Warning about pods
	pods, groups, queues, nodes *source

	hub  hub
	past past

	mu sync.RWMutex
	// rows holds the rows of all jobs by JobTopic.
	rows map[string]view.JobRow

	settled chan struct{}
	running sync.WaitGroup
}

// Indices of the caches. byJob indexes pods by the key of their job (keyOf), byName events by the topic of the
// involved job (JobTopic), and byUID events by the UID of the involved object. waiting and onNode hold the value "yes"
// for the pods that wait for the t9k-scheduler, and for the pods that are bound to a node and have not ended.
const (
	byJob   = "job"
	byName  = "name"
	byUID   = "uid"
	waiting = "waiting"
	onNode  = "node"
)

// Start starts the caches with the rights of config. It does not wait until they are filled. If the user may not list a
// resource in all namespaces, its cache holds only the objects in the given namespace, or none if the user may not list
// those either. The caches stop when ctx ends; Wait waits for that.
func Start(ctx context.Context, config *rest.Config, namespace string) (*Cache, error) {
	c := &Cache{rows: map[string]view.JobRow{}, settled: make(chan struct{})}
	if err := c.build(config); err != nil {
		return nil, err
	}
	var open sync.WaitGroup
	for _, s := range c.sources() {
		open.Add(1)
		once := sync.OnceFunc(open.Done)
		c.running.Go(func() { s.run(ctx, namespace, once, func() { c.hub.publish("") }) })
	}
	c.running.Go(func() {
		open.Wait()
		close(c.settled)
		c.dropStray()
	})
	return c, nil
}

// Settled returns a channel that is closed when all caches have been filled for the first time with the objects that
// the user may list.
func (c *Cache) Settled() <-chan struct{} { return c.settled }

// Wait waits until the caches have stopped, which they do after the end of the context of Start.
func (c *Cache) Wait() { c.running.Wait() }

func (c *Cache) sources() []*source {
	return append(slices.Concat(c.jobs, c.events), c.warnings, c.pods, c.groups, c.queues, c.nodes)
}

func (c *Cache) build(config *rest.Config) error {
	core, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	jobs, err := clientFor(config, batch.GroupVersion.Group, batch.GroupVersion.Version, batch.AddToScheme)
	if err != nil {
		return err
	}
	scheduler, err := clientFor(config, scheduling.GroupVersion.Group, scheduling.GroupVersion.Version, scheduling.AddToScheme)
	if err != nil {
		return err
	}
	v1 := core.CoreV1().RESTClient()
	for i := range kinds.All {
		k := &kinds.All[i]
		c.jobs = append(c.jobs, &source{group: batch.GroupVersion.Group, plural: k.Plural, what: k.Name + "s", client: jobs, object: k.New(), namespaced: true, transform: slim, handler: c.jobHandler(k)})
		c.events = append(c.events, &source{plural: "events", what: "events", client: v1, object: &corev1.Event{}, namespaced: true, transform: slim,
			selector: fields.OneTermEqualSelector("involvedObject.kind", k.Name), handler: c.handler(eventTopic),
			indexers: cache.Indexers{byName: func(o any) ([]string, error) { return []string{eventTopic(o)}, nil }}})
	}
	c.warnings = &source{plural: "events", what: "events", client: v1, object: &corev1.Event{}, namespaced: true, transform: slimEvent,
		selector: fields.AndSelectors(fields.OneTermEqualSelector("involvedObject.kind", "Pod"), fields.OneTermEqualSelector("type", corev1.EventTypeWarning)),
		handler:  c.warningHandler(), indexers: cache.Indexers{byUID: uidOfPod}}
	c.pods = &source{plural: "pods", what: "pods", client: v1, object: &corev1.Pod{}, namespaced: true, transform: slimPod, handler: c.podHandler(),
		indexers: cache.Indexers{byJob: ownerOfPod, waiting: waitsForUs, onNode: nodeOf}}
	c.groups = &source{group: scheduling.GroupVersion.Group, plural: "podgroups", what: "PodGroups", client: scheduler, object: &scheduling.PodGroup{}, namespaced: true, transform: slim,
		handler: c.handler(func(any) string { return topicQueues })}
	c.queues = &source{group: scheduling.GroupVersion.Group, plural: "queues", what: "queues", client: scheduler, object: &scheduling.Queue{}, transform: slim, handler: c.handler(func(any) string { return topicQueues })}
	c.nodes = &source{plural: "nodes", what: "nodes", client: v1, object: &corev1.Node{}, transform: slim, handler: c.handler(func(any) string { return topicNodes })}
	return nil
}

func protobuf(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return c
}

// clientFor returns a client for one group of our API types.
func clientFor(config *rest.Config, group, version string, register func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := register(scheme); err != nil {
		return nil, fmt.Errorf("registering the types of %s: %w", group, err)
	}
	c := rest.CopyConfig(config)
	gv := scheme.PrioritizedVersionsForGroup(group)[0]
	gv.Version = version
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}
