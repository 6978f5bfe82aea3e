// Package sites determines which nodes the pods of a queue may use, as if the nodes were empty, from the labels and
// taints of the nodes. It decides like the filters of kube-scheduler without running them. Package core uses the result
// only to find groups that can never start.
package sites
