// Package refusal formats the errors with which an API server refuses objects, for golden files.
package refusal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Text returns a line for each cause of err, or the message of err if it has no causes. The lines are sorted, because
// the API server's order is random. Text ends the test if err is not an API error or its code is 500 or higher.
func Text(t *testing.T, err error) string {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code >= 500 {
		t.Fatalf("not a refusal: %v", err)
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		return status.Status().Message + "\n"
	}
	var lines []string
	for _, cause := range details.Causes {
		lines = append(lines, cause.Field+": "+cause.Message+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
