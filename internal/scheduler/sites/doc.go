// Package sites says which nodes the pods of a queue may use when nothing runs there, by the labels and taints of the
// nodes. It decides as the filters of kube-scheduler do, without running them: core needs the nodes of groups that can
// never start, and nothing else is computed of them.
package sites
