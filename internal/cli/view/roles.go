package view

import (
	"fmt"
	"strings"

	"tensorstack.dev/batch/internal/engine"
)

// Roles sums up the roles of a job: "worker × 4, ps × 2", "worker × 2 (elastic 2-4)".
func Roles(job *engine.Job) string {
	var parts []string
	for i := range job.Roles {
		parts = append(parts, fmt.Sprintf("%s × %d", job.Roles[i].Type, job.Roles[i].Replicas))
	}
	return strings.TrimSpace(strings.Join(parts, ", ") + " " + bounds(job))
}

// restartPolicy says in words when the replicas of a role are restarted.
func restartPolicy(job *engine.Job, r engine.Restart) string {
	policy := "Never"
	switch {
	case len(r.Codes) > 0:
		policy = "ExitCode"
	case r.OnSuccess:
		policy = "Always"
	case r.OnFailure:
		policy = "OnFailure"
	}
	switch {
	case policy == "Never", r.Limit == nil && job.RestartLimit != nil:
		return policy
	case r.Limit == nil:
		return policy + ", no limit"
	default:
		return fmt.Sprintf("%s, at most %d each", policy, *r.Limit)
	}
}
