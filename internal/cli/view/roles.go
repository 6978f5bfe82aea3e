package view

import (
	"fmt"
	"strings"

	"tensorstack.dev/batch/internal/engine"
)

// Roles sums up the roles of a job: "worker × 4, ps × 2".
func Roles(job *engine.Job) string {
	var parts []string
	for i := range job.Roles {
		parts = append(parts, fmt.Sprintf("%s × %d", job.Roles[i].Type, job.Roles[i].Replicas))
	}
	return strings.Join(parts, ", ")
}

// restartPolicy says in words when the replicas of a role are restarted.
func restartPolicy(r engine.Restart) string {
	policy := "Never"
	switch {
	case r.OnSuccess:
		policy = "Always"
	case r.OnFailure:
		policy = "OnFailure"
	}
	switch {
	case policy == "Never":
		return policy
	case r.Limit == nil:
		return policy + ", no limit"
	default:
		return fmt.Sprintf("%s, at most %d each", policy, *r.Limit)
	}
}
