package kinds_test

import (
	"embed"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/testing/golden"
)

//go:embed testdata/*/*.yaml
var testdata embed.FS

// TestBadManifestsGetTheirErrorMessages verifies the error messages for invalid jobs and invalid updates. Each file of
// testdata/bad holds a job, or a job followed by an update that a live job does not accept. NAME.validate.txt holds the
// messages of this package, and NAME.server.txt the messages of the API server, which test/integration compares.
func TestBadManifestsGetTheirErrorMessages(t *testing.T) {
	for _, m := range kindtest.Manifests(t, testdata, "testdata/bad") {
		t.Run(m.Name, func(t *testing.T) {
			golden.Compare(t, "testdata/bad/"+m.Name+".validate.txt", refusal(t, m.Data))
		})
	}
}

// refusal returns the error messages for a bad manifest, one line per error.
func refusal(t *testing.T, manifest []byte) string {
	objects, err := kindtest.Decode(manifest)
	if err != nil {
		return "cannot be read: " + err.Error() + "\n"
	}
	job := objects[0]
	k, err := kinds.ByName(job.GetObjectKind().GroupVersionKind().Kind)
	if err != nil {
		t.Fatal(err)
	}
	errs := k.Validate(job, kinds.Limits{})
	if len(objects) == 2 {
		errsAfter := k.Validate(objects[1], kinds.Limits{})
		if all := append(errs, errsAfter...); len(all) > 0 {
			t.Fatalf("only the change should be bad: %v", all)
		}
		errs = k.ValidateUpdate(objects[1], job)
	}
	if len(errs) == 0 {
		t.Fatal("the manifest is accepted")
	}
	return lines(errs)
}

func lines(errs field.ErrorList) string {
	var b strings.Builder
	for _, err := range errs {
		b.WriteString(err.Error() + "\n")
	}
	return b.String()
}
