// Package core decides which groups of pods start, which wait and why, and which pods they evict. Round reads the
// queues, groups and pods of a Cluster and changes none of them. The caller must not change them while Round runs.
// Round tries placements through the Nodes interface. Its only effect is on the state of Nodes: when Round returns, the
// nodes have the pods that they had before and the pods that the round binds or reserves. A decision depends only on
// the Cluster and on the answers of Nodes.
//
// A gang is a transaction: the round places its pods one after the other, and rolls all of them back unless the whole
// minimum fits. Start reading at Round.
package core
