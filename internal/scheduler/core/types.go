package core

import "time"

// Resources are amounts by resource, in the smallest unit that the caller counts (thousandths of a CPU, bytes).
type Resources map[string]int64

// MaxRequest is the largest request of a pod that a round can add up. It is larger than any node, and so small that the
// requests of 100,000 pods do not overflow. Callers must pass larger requests as MaxRequest.
const MaxRequest = 1 << 46

// Queue is a queue as a round sees it: its quota, its capacity and its rules.
type Queue struct {
	Name string
	// Quota limits the sum of requests. Resources that it does not list have no limit.
	Quota Resources
	// Capacity is the sum of the allocatable resources of the nodes that the queue may use; empty if it is not known.
	// The share of a resource without a quota is relative to the capacity. The round frees or reserves no room for a
	// group that needs more than the capacity.
	Capacity Resources
	Priority int32
	// Preemptible is true if queues of higher priority may evict pods of this one.
	Preemptible bool
	// Closed is true if no new group may start in the queue.
	Closed bool
	// PodLimit limits the requests of each pod that starts. Resources that it does not list have no limit.
	PodLimit Resources
	// Barred is the reason why PodLimit is unknown, in which case no pod may start; empty if PodLimit is known.
	Barred string
}

// Topology is the policy by which a group is spread over the topology domains of nodes. The empty value has no
// preference.
type Topology string

// Topology policies. BestEffort prefers one domain and spreads the group over several if no domain has enough room.
// Required places the whole group in one domain, or not at all.
const (
	BestEffort Topology = "BestEffort"
	Required   Topology = "Required"
)

// Pod is a pod that has a node or waits for one. Finished pods are not listed.
type Pod struct {
	UID, Name, Role string
	Requests        Resources
	// Shape is equal for pods that need the same room on the same nodes, whatever else runs there. It is empty for pods
	// that cannot be compared, for example because their placement depends on other pods.
	Shape   string
	Created time.Time
	// Node is empty while the pod waits.
	Node string
	// Ending is true if the pod is being deleted and still holds its room.
	Ending bool
	// Barred is the reason why the pod may not start, because its requester has no right to the queue of its group. It
	// is empty if the pod may start.
	Barred string
	// Gone is true if the pod no longer holds room. Reservations that it blocked still refer to it.
	Gone bool
}

// Group is a set of pods that start together.
type Group struct {
	Name, Queue string
	Priority    int32
	Created     time.Time
	// Min is the number of pods that must be placed together. Roles are the minimums by role.
	Min      int
	Roles    map[string]int
	Topology Topology
	// Finished counts the pods that terminated by themselves, by role. They count towards the minimum.
	Finished map[string]int
	Pods     []*Pod
	// Barred is the reason why the group may not start, because its requester has no right to its queue. It is empty if
	// the group may start.
	Barred string
	// Since is the time at which the group began to wait with all of its minimum present; zero while pods are missing.
	Since time.Time
	// Partial is the time at which the group was first seen to be partly bound; zero while it is not.
	Partial time.Time
	// Complete is true if the whole minimum was bound once. If such a group loses pods, the round does not evict the
	// others after Grace.
	Complete bool
	// Reservation is the room that an earlier round reserved for the group; nil if there is none. Round places its
	// pods, so Nodes must not have them when Round is called.
	Reservation *Reservation
}

// Placement is a pod and its node.
type Placement struct {
	Pod  *Pod
	Node string
}

// Reservation is room that is kept for a group until the pods that use it have terminated.
type Reservation struct {
	Placements []Placement
	// Blockers are the pods whose termination the group waits for.
	Blockers []*Pod
	// Victims are the blockers that the scheduler evicts for the group. Each other blocker is already terminating, is
	// evicted for another group, or terminates by itself.
	Victims []*Pod
	// Order is the position of the reservation. Rounds try the groups in this order, the lowest first, and each group
	// may take the room of reservations with a higher order.
	Order int
	// Evicts is true if the group waits for a preemption. If it is false, the scheduler evicts no pod for the group.
	Evicts bool
}

// Nodes places pods on nodes. Each call takes effect at once: the next Place sees it. Round undoes each call except
// those that place the pods of its decisions. Nodes may change between two calls for other reasons, for example because
// a pod of another scheduler terminates.
type Nodes interface {
	// Place puts a waiting pod on the best node that among allows; a nil filter allows all nodes. If the pod fits on no
	// node, Place returns an empty name and a function that explains why. The function is valid until the next
	// placement.
	Place(p *Pod, among func(node string) bool) (node string, why func() string)
	// Put puts a pod on a node without a check that it fits.
	Put(p *Pod, node string)
	// Take removes a pod from a node.
	Take(p *Pod, node string)
}

// Cluster is the input of a round. The round only reads it and everything that it refers to, with two exceptions: it
// changes the state of Nodes, and Sites cache their answers.
type Cluster struct {
	Queues map[string]*Queue
	// Groups are all groups with a waiting pod or a reservation.
	Groups []*Group
	// Running lists all groups with a pod that has a node; nil means those in Groups. The round calls Running only when
	// it looks for room to free.
	Running func() []*Group
	// Used is the sum of the requests of pods with a node, by queue; nil means the sum over Groups.
	Used  map[string]Resources
	Nodes Nodes
	// Sites returns the nodes that a pod of a group may use, as if they were empty. If Sites is nil, the nodes are
	// unknown, and the round reports no group as Impossible for lack of nodes.
	Sites func(g *Group, p *Pod) *Sites
	// Uncounted reports whether pods may get a resource from a source other than the allocatable resources of their
	// node; nil means that there is no such resource.
	Uncounted func(resource string) bool
	// Domain returns the topology domain of a node, or an empty string if it has none; if Domain is nil, no node has
	// one. Domains lists all domains in order.
	Domain  func(node string) string
	Domains []string
	Now     time.Time
	// ReserveAfter is the time that a group waits before the round reserves room for it; zero means never.
	ReserveAfter time.Duration
	// Grace is the time for which a gang may stay partly bound before the round evicts its pods; zero means forever.
	Grace time.Duration
	// Skip reports whether to leave a group out of this round. The group keeps its reservation. Nil means that no group
	// is left out.
	Skip func(*Group) bool
	// Shapeless is true if pods of one shape do not always fit the same nodes, because running pods exclude some of
	// them.
	Shapeless bool
	// MaxPods is the approximate number of placed pods after which the round ends; zero means no limit.
	MaxPods int
}

// Reason is the reason of a decision: Scheduled, or why the group waits.
type Reason string

// Reasons, with the names that the API uses.
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

// Decision is the decision of a round about one group.
type Decision struct {
	Group *Group
	// Gangs are the pods to bind. Each set is bound as a whole or not at all.
	Gangs [][]Placement
	// Evict are the pods to evict now. They may belong to other groups.
	Evict []*Pod
	// Reservation is the room to keep for the group. The caller passes it to the next round.
	Reservation *Reservation
	// Reason is why the group, or its pods beyond the minimum, wait. It is Scheduled if no pod waits, or if the round
	// ended before it tried the pods that wait.
	Reason  Reason
	Message string
	// LacksNodes is true if only room on nodes is missing, so that more nodes would let the waiting pods start.
	LacksNodes bool
	// Extra is true if the minimum is placed. Reason is then about the pods beyond it.
	Extra bool
}

// Result is the outcome of a round. Decisions are in the order in which the round first tried the groups.
type Result struct {
	Decisions []*Decision
	// More is true if another round should follow at once, because this round left groups out, or dropped a reservation
	// whose room earlier groups did not see.
	More bool
}
