package live

import "sync"

// Topics of changes: of all jobs, of queues, PodGroups and waiting pods, and of nodes and pods.
const (
	TopicJobs   = "jobs"
	topicQueues = "queues"
	topicNodes  = "nodes"
)

// JobTopic returns the topic of the changes of one job, its pods and its events.
func JobTopic(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// TopicsQueues and TopicsNodes are the topics of the pages of queues and nodes.
var (
	TopicsQueues = []string{topicQueues, topicNodes, TopicJobs}
	TopicsNodes  = []string{topicNodes}
)

// hub notifies subscribers of changes. It keeps no history: a notice only means that the subscriber must read again.
type hub struct {
	mu   sync.Mutex
	next int
	// published counts the changes of each topic; the empty topic counts changes that affect all topics.
	published map[string]uint64
	// subscribers holds the channels by topic and subscription number. There are no subscriptions to the empty topic.
	subscribers map[string]map[int]chan struct{}
}

// Subscribe returns a channel that receives a notice after each change of one of the topics, and a function that
// cancels the subscription. Unread notices are merged into one.
func (c *Cache) Subscribe(topics ...string) (notices <-chan struct{}, end func()) {
	h := &c.hub
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscribers == nil {
		h.subscribers = map[string]map[int]chan struct{}{}
	}
	h.next++
	n := h.next
	for _, t := range topics {
		if h.subscribers[t] == nil {
			h.subscribers[t] = map[int]chan struct{}{}
		}
		h.subscribers[t][n] = ch
	}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, t := range topics {
			delete(h.subscribers[t], n)
			if len(h.subscribers[t]) == 0 {
				delete(h.subscribers, t)
			}
		}
	}
}

// Version returns a number that increases with each change of the topics.
func (v *View) Version(topics ...string) uint64 {
	h := &v.cache.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.published[""]
	for _, t := range topics {
		n += h.published[t]
	}
	return n
}

// publish counts a change of a topic and notifies its subscribers. The empty topic means all topics.
func (h *hub) publish(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.published == nil {
		h.published = map[string]uint64{}
	}
	h.published[topic]++
	if topic == "" {
		for t := range h.subscribers {
			h.notify(t)
		}
		return
	}
	h.notify(topic)
}

func (h *hub) notify(topic string) {
	for _, ch := range h.subscribers[topic] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
