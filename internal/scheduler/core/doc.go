// Package core decides which groups of pods start, which wait and why, and which pods they evict. Round reads the
// queues, groups and pods of a Cluster and changes none of them, and nobody else may change them while it runs. It
// tries placements on the nodes through the Nodes interface, whose state is its only effect: at the end, the nodes have
// what they had before and the pods of the decisions. A decision follows from the Cluster and from the answers of
// Nodes.
//
// A gang is a transaction: the round places its pods one after the other, and rolls all of them back unless the whole
// minimum fits. Start reading at Round.
package core
