package core

import "time"

// Resources are amounts by resource, in the smallest unit that the caller counts (thousandths of a CPU, bytes).
type Resources map[string]int64

// Queue is a share of the cluster.
type Queue struct {
	Name string
	// Quota limits the sum of requests; a resource that is not in it has no limit.
	Quota Resources
	// Capacity is what the nodes have that the queue may use. Shares of resources without a quota are measured by it.
	Capacity Resources
	Priority int32
	// Preemptible tells whether queues of higher priority may evict pods of this one.
	Preemptible bool
	// Closed lets no new group start.
	Closed bool
	// PodLimit limits the requests of each pod that is to start; a resource that is not in it has no limit.
	PodLimit Resources
	// Barred is why no pod may start, for PodLimit is not known; empty: it is.
	Barred string
}

// Topology says how a group is spread over the domains of nodes.
type Topology string

// Unset: no preference.
const (
	BestEffort Topology = "BestEffort"
	Required   Topology = "Required"
)

// Pod is a pod that waits for a node or has one. Finished pods are none.
type Pod struct {
	UID, Name, Role string
	Requests        Resources
	// Shape is the same for pods that need the same room on the same nodes, whatever else runs there; empty for pods that
	// look at more than that, such as at other pods.
	Shape   string
	Created time.Time
	// Node is empty while the pod waits.
	Node string
	// Ending: the pod is being deleted and still holds its room.
	Ending bool
	// Barred is why the pod may not start, for its author has no right to the queue of its group; empty: it may.
	Barred string
	// Gone: the pod holds no room any more. It stays known to those who waited for that.
	Gone bool
}

// Group is a set of pods that start together.
type Group struct {
	Name, Queue string
	Priority    int32
	Created     time.Time
	// Min is how many pods must be placed together; Roles are minimums by role.
	Min      int
	Roles    map[string]int
	Topology Topology
	// Finished counts the pods that ended by themselves, by role. They count for the minimum.
	Finished map[string]int
	Pods     []*Pod
	// Barred is why the group may not start, for who asked for it has no right to its queue; empty: it may.
	Barred string
	// Since is since when the group waits with all of its minimum; zero while that is not there.
	Since time.Time
	// Partial is since when the group is known to be partly bound; zero while it is not.
	Partial time.Time
	// Complete: the minimum was bound once. Such a group that loses pods is not a gang that failed to start.
	Complete bool
	// Reservation is the room kept for the group by an earlier round.
	Reservation *Reservation
}

// Placement is a pod and its node.
type Placement struct {
	Pod  *Pod
	Node string
}

// Reservation is room that is kept for a group until those who use it have gone.
type Reservation struct {
	Placements []Placement
	// Blockers are the pods whose end the group waits for.
	Blockers []*Pod
	// Order is that in which rooms are given: a reservation may build on the room of earlier ones, and not the other way around.
	Order int
	// Preempting: the blockers are evicted. Otherwise they end by themselves.
	Preempting bool

	group *Group
}

// Nodes is where pods are placed. Each call takes effect at once: the next Place sees it.
type Nodes interface {
	// Place puts a pod that waits on the best node for it among those for which among is true (nil: all nodes). If there is
	// none it returns "", and what tells why as long as nothing else is placed.
	Place(p *Pod, among func(node string) bool) (node string, why func() string)
	// Put puts a pod on a node without asking whether it fits.
	Put(p *Pod, node string)
	// Take takes a pod off a node.
	Take(p *Pod, node string)
}

// Cluster is what a round decides about.
type Cluster struct {
	Queues map[string]*Queue
	// Groups are all groups with a pod that waits, and those for which room is kept.
	Groups []*Group
	// Running lists all groups with a pod that has a node; nil: those in Groups. It is called where room may have to be made.
	Running func() []*Group
	// Used is what the pods with a node use, by queue; nil: those in Groups. Round changes a copy of it.
	Used  map[string]Resources
	Nodes Nodes
	// Sites are the nodes that a pod of a group may use, as if nothing ran on them; nil: that is not known, and nothing is
	// Impossible for want of nodes.
	Sites func(g *Group, p *Pod) *Sites
	// Uncounted tells of resources that pods may get from elsewhere than the room of their nodes; nil: there are none.
	Uncounted func(resource string) bool
	// Domain is the topology domain of a node, empty where it has none; Domains lists all of them in order.
	Domain  func(node string) string
	Domains []string
	Now     time.Time
	// ReserveAfter is how long a group waits until room is kept for it.
	ReserveAfter time.Duration
	// Grace is how long a gang may stay partly bound before what runs of it is evicted.
	Grace time.Duration
	// Skip tells which groups are not tried in this round, though the room kept for them is kept on; nil: none.
	Skip func(*Group) bool
	// Shapeless: pods of one shape need not fit the same nodes now, for some pods that run refuse others.
	Shapeless bool
	// MaxPods ends the round once that many pods have been placed; 0: no limit.
	MaxPods int
}

// Reason says why a group waits.
type Reason string

// Reasons in the words of the API.
const (
	Scheduled        Reason = "Scheduled"
	NotEnoughMembers Reason = "NotEnoughMembers"
	QueueNotFound    Reason = "QueueNotFound"
	QueueClosed      Reason = "QueueClosed"
	NotAdmitted      Reason = "NotAdmitted"
	ShapeUnknown     Reason = "ResourceShapeUnknown"
	PodTooLarge      Reason = "PodTooLarge"
	QuotaExceeded    Reason = "QuotaExceeded"
	NoRoom           Reason = "NoRoom"
	Impossible       Reason = "Impossible"
	Preempting       Reason = "Preempting"
	Reserved         Reason = "Reserved"
)

// Decision is what a round decided for one group.
type Decision struct {
	Group *Group
	// Gangs are the pods to bind, in sets that are bound together or not at all.
	Gangs [][]Placement
	// Evict are pods, of any group, to evict now.
	Evict []*Pod
	// Reservation is the room to keep for the group; the caller hands it back with the group's next round.
	Reservation *Reservation
	// Reason is why the group, or what is beyond its minimum, waits; Scheduled if nothing of it does.
	Reason  Reason
	Message string
	// LacksNodes: room on nodes is all that is missing, so that more nodes would let start what waits.
	LacksNodes bool
	// Extra: the minimum is placed, and Reason is about pods beyond it.
	Extra bool
}

// Result lists the decisions, in the order in which they were taken.
type Result struct {
	Decisions []*Decision
	// More: there is reason for another round at once, with groups that this one did not look at or that may fit now.
	More bool
}
