package engine

import "strconv"

// MaxNameLength is the longest name that a pod's hostname may have, in characters: that of a DNS label.
const MaxNameLength = 63

// ReplicaName is the name of a replica of a job, of its pod and of the pod's host: JOB-ROLE-RANK.
func ReplicaName(job, role string, rank int) string {
	return job + "-" + role + "-" + strconv.Itoa(rank)
}
