// Package core decides which groups of pods start, which wait and why, and whom they displace. It is a function of its
// arguments: it sees the cluster as a value, and the nodes through an interface that tries and takes back. So a gang is a
// transaction: its pods are placed one after the other, and unless all of its minimum fits, all is as it was before.
package core
