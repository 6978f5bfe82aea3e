// Package core decides which groups of pods start, which wait and why, and which pods they evict. It is a pure
// function of its arguments: it sees the cluster as a value, and it reaches the nodes through the Nodes interface. A
// gang is a transaction: the round places its pods one after the other, and rolls all of them back unless the whole
// minimum fits. Start reading at Round.
package core
