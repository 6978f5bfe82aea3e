package core

import "time"

// Resources are amounts by resource, in the smallest unit that the caller counts (thousandths of a CPU, bytes).
type Resources map[string]int64

// MaxRequest is the largest request of a pod that a round can add up: larger than any node, and so small that the
// requests of 100,000 pods do not overflow. Callers count larger requests as this.
const MaxRequest = 1 << 46

// Queue is a share of the cluster.
type Queue struct {
	Name string
	// Quota limits the sum of requests. Resources that it does not list have no limit.
	Quota Resources
	// Capacity is what the nodes have that the queue may use. The share of a resource without a quota is measured
	// against it.
	Capacity Resources
	Priority int32
	// Preemptible reports whether queues of higher priority may evict pods of this one.
	Preemptible bool
	// Closed means that no new group may start in the queue.
	Closed bool
	// PodLimit limits the requests of each pod that starts. Resources that it does not list have no limit.
	PodLimit Resources
	// Barred is why no pod may start while PodLimit is unknown; empty if it is known.
	Barred string
}

// Topology is how a group is spread over the topology domains of nodes. The empty value has no preference.
type Topology string

// Policies of topology.
const (
	BestEffort Topology = "BestEffort"
	Required   Topology = "Required"
)

// Pod is a pod that has a node or waits for one. Finished pods are not listed.
type Pod struct {
	UID, Name, Role string
	Requests        Resources
	// Shape is equal for pods that need the same room on the same nodes, whatever else runs there. It is empty for pods
	// whose placement depends on other pods too.
	Shape   string
	Created time.Time
	// Node is empty while the pod waits.
	Node string
	// Ending means that the pod is being deleted and still holds its room.
	Ending bool
	// Barred is why the pod may not start: its author has no right to the queue of its group. It is empty if the pod
	// may start.
	Barred string
	// Gone means that the pod holds no room any more. Reservations for which it was a blocker still refer to it.
	Gone bool
}

// Group is a set of pods that start together.
type Group struct {
	Name, Queue string
	Priority    int32
	Created     time.Time
	// Min is how many pods must be placed together. Roles are minimums by role.
	Min      int
	Roles    map[string]int
	Topology Topology
	// Finished counts the pods that ended by themselves, by role. They count towards the minimum.
	Finished map[string]int
	Pods     []*Pod
	// Barred is why the group may not start: its author has no right to its queue. It is empty if the group may start.
	Barred string
	// Since is when the group began to wait with all of its minimum present; zero while pods are missing.
	Since time.Time
	// Partial is when the group was first seen to be partly bound; zero while it is not.
	Partial time.Time
	// Complete means that the whole minimum was bound once. A complete group that loses pods is not a gang that failed
	// to start.
	Complete bool
	// Reservation is the room that an earlier round reserved for the group.
	Reservation *Reservation
}

// Placement is a pod and its node.
type Placement struct {
	Pod  *Pod
	Node string
}

// Reservation is room that is kept for a group until the pods that use it have gone.
type Reservation struct {
	Placements []Placement
	// Blockers are the pods whose end the group waits for.
	Blockers []*Pod
	// Victims are the blockers that the scheduler evicts for the group. The others were ending already, or are evicted
	// for another group.
	Victims []*Pod
	// Order is the position of the reservation: it may build on the room of reservations with a lower order only.
	Order int
	// Evicts means that the scheduler evicts pods. Otherwise all blockers end by themselves.
	Evicts bool
}

// Nodes places pods on nodes. Each call takes effect at once: the next Place sees it. Round undoes each call but those
// that place the pods of its decisions. Nodes may change between two calls for other reasons, for example because a pod
// of another scheduler ends.
type Nodes interface {
	// Place puts a waiting pod on the best node that among allows (nil: all nodes). If no node takes it, Place returns
	// an empty name and a function that explains why; the function is valid until the next placement.
	Place(p *Pod, among func(node string) bool) (node string, why func() string)
	// Put puts a pod on a node without a check that it fits.
	Put(p *Pod, node string)
	// Take removes a pod from a node.
	Take(p *Pod, node string)
}

// Cluster is the input of a round. The round only reads it, and what it points to; Nodes is the exception, and Sites
// cache what they have computed.
type Cluster struct {
	Queues map[string]*Queue
	// Groups are all groups with a waiting pod or a reservation.
	Groups []*Group
	// Running lists all groups with a pod that has a node; nil means those in Groups. The round calls it only when it
	// looks for room to free.
	Running func() []*Group
	// Used is what the pods with a node use, by queue; nil means the sum over Groups.
	Used  map[string]Resources
	Nodes Nodes
	// Sites returns the nodes that a pod of a group may use, as if nothing ran on them. Nil means that they are
	// unknown: the round then finds no group Impossible for lack of nodes.
	Sites func(g *Group, p *Pod) *Sites
	// Uncounted reports whether pods may get a resource from elsewhere than the room of their node; nil means that
	// there is no such resource.
	Uncounted func(resource string) bool
	// Domain returns the topology domain of a node, or an empty string if it has none. Domains lists all domains in
	// order.
	Domain  func(node string) string
	Domains []string
	Now     time.Time
	// ReserveAfter is how long a group waits before the round reserves room for it; zero means never.
	ReserveAfter time.Duration
	// Grace is how long a gang may stay partly bound before the round evicts its pods; zero means forever.
	Grace time.Duration
	// Skip reports whether to leave a group out of this round. Its reservation stays. Nil means that no group is left
	// out.
	Skip func(*Group) bool
	// Shapeless means that pods of one shape do not always fit the same nodes, because running pods refuse some of
	// them.
	Shapeless bool
	// MaxPods ends the round once that many pods have been placed; 0 means no limit.
	MaxPods int
}

// Reason is why a group waits.
type Reason string

// Reasons, as the API names them.
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
	// Gangs are the pods to bind. Each set is bound as a whole or not at all.
	Gangs [][]Placement
	// Evict are the pods to evict now. They may belong to other groups.
	Evict []*Pod
	// Reservation is the room to keep for the group. The caller passes it to the next round.
	Reservation *Reservation
	// Reason is why the group, or its pods beyond the minimum, wait; Scheduled if none of them waits.
	Reason  Reason
	Message string
	// LacksNodes means that only room on nodes is missing, so more nodes would let the waiting pods start.
	LacksNodes bool
	// Extra means that the minimum is placed, and that Reason is about pods beyond it.
	Extra bool
}

// Result is the outcome of a round. Decisions are in the order in which the round took them.
type Result struct {
	Decisions []*Decision
	// More means that another round should follow at once: this one left groups out, or freed room that earlier groups
	// did not see.
	More bool
}
