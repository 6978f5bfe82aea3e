package engine

import "strconv"

// MaxNameLength is the maximum length of a pod's hostname in characters, which is the maximum length of a DNS label.
const MaxNameLength = 63

// ReplicaName returns the name of a replica, of its pod and of the pod's host: JOB-ROLE-RANK.
func ReplicaName(job, role string, rank int) string {
	return job + "-" + role + "-" + strconv.Itoa(rank)
}
