// Package refusal puts what an API server refuses into a form that golden files can hold.
package refusal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Text has a line for each cause, in an order of its own: the API server's is random. An error that is no refusal ends the test.
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
