package view

import (
	"fmt"
	"strconv"
	"strings"

	"tensorstack.dev/batch/internal/engine"
)

// Roles returns the roles of a job as text: "worker × 4, ps × 2", "worker × 2 (elastic 2-4)".
func Roles(job *engine.Job) string {
	var parts []string
	for i := range job.Roles {
		parts = append(parts, fmt.Sprintf("%s × %d", job.Roles[i].Type, job.Roles[i].Replicas))
	}
	return strings.TrimSpace(strings.Join(parts, ", ") + " " + bounds(job))
}

// restartPolicy returns when the replicas of a role are restarted, as text.
func restartPolicy(job *engine.Job, r engine.Restart) string {
	policy := "Never"
	switch {
	case r.OnSuccess:
		policy = "Always"
	case r.OnFailure:
		policy = "OnFailure"
	case len(r.RestartCodes) > 0 && job.RestartLimit != nil:
		policy = "ExitCode"
	}
	never := policy == "Never" && len(r.RestartCodes) == 0
	if policy != "ExitCode" {
		policy += codes(" but after exit code ", r.RestartCodes, !r.OnFailure) + codes(" but not after exit code ", r.FailCodes, r.OnFailure)
	}
	switch {
	case never:
		return policy
	case r.Limit != nil:
		policy += fmt.Sprintf(", at most %d each", *r.Limit)
	case job.RestartLimit == nil:
		policy += ", no limit"
	}
	if r.All {
		policy += "; all replicas restart together"
	}
	return policy
}

// codes returns exit codes as text that begins with what: " but after exit code 137, 143". It returns an empty text if
// there are no codes or if they do not matter.
func codes(what string, ranges []engine.CodeRange, matter bool) string {
	if !matter || len(ranges) == 0 {
		return ""
	}
	var parts []string
	for _, r := range ranges {
		text := strconv.Itoa(int(r.First))
		if r.Last > r.First {
			text += "-" + strconv.Itoa(int(r.Last))
		}
		parts = append(parts, text)
	}
	return what + strings.Join(parts, ", ")
}
