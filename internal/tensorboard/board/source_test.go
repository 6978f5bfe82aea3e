package board

import (
	"slices"
	"strings"
	"testing"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// TestFilesetsAreParsed verifies the sources and the option that Convert and Option make of a valid fileset.
func TestFilesetsAreParsed(t *testing.T) {
	for text, want := range map[string]Logs{
		"t9k://pvc/codepack-example/codepack/log":                                         ofClaim("codepack-example", "codepack/log"),
		"t9k://pvc/tutorial/tutorial-examples/em/data-parallel-training/log":              ofClaim("tutorial", "tutorial-examples/em/data-parallel-training/log"),
		"t9k://pvc/tutorial/tutorial-examples/job/pytorchtrainingjob/ddp/log":             ofClaim("tutorial", "tutorial-examples/job/pytorchtrainingjob/ddp/log"),
		"t9k://pvc/tutorial/tutorial-examples/job/pytorchtrainingjob/ps/log":              ofClaim("tutorial", "tutorial-examples/job/pytorchtrainingjob/ps/log"),
		"t9k://pvc/tutorial/tutorial-examples/job/tensorflowtrainingjob/multiworker/log/": ofClaim("tutorial", "tutorial-examples/job/tensorflowtrainingjob/multiworker/log"),
		"t9k://pvc/tutorial":                    {Sources: []Source{{"tutorial", "/logs/tutorial"}}, Claims: []string{"tutorial"}},
		"t9k://minio/keys/bucket":               {Sources: []Source{{"bucket", "s3://bucket"}}, Secret: "keys"},
		"t9k://minio/keys/bucket/experiments/1": {Sources: []Source{{"bucket/experiments/1", "s3://bucket/experiments/1"}}, Secret: "keys"},
	} {
		got, errs := Convert(&tensorboard.TensorBoardSpec{Image: "x", TrainingLogFilesets: []string{text}})
		if len(errs) > 0 {
			t.Errorf("%s: %v", text, errs)
			continue
		}
		if !slices.Equal(got.Sources, want.Sources) || !slices.Equal(got.Claims, want.Claims) || got.Secret != want.Secret || len(got.Downloads) > 0 {
			t.Errorf("%s is parsed as %+v, want %+v", text, *got, want)
		}
		if option := "--logdir=" + want.Sources[0].Location; got.Option() != option {
			t.Errorf("%s yields %s, want %s", text, got.Option(), option)
		}
	}
}

func ofClaim(name, dir string) Logs {
	return Logs{Sources: []Source{{name + "/" + dir, "/logs/" + name + "/" + dir}}, Claims: []string{name}}
}

// FuzzFilesets verifies, for any valid filesets, that the names of the sources differ, and that neither a name nor a
// location contains a comma, which separates the sources in TensorBoard's list. Each location must be a mounted volume
// or an object store.
func FuzzFilesets(f *testing.F) {
	f.Add("t9k://pvc/a/b", "t9k://minio/s/b/p")
	f.Add("t9k://pvc/a,b/c:d", "t9k://pvc//")
	f.Fuzz(func(t *testing.T, one, two string) {
		logs, errs := Convert(&tensorboard.TensorBoardSpec{Image: "x", TrainingLogFilesets: []string{one, two, one}})
		if len(errs) > 0 {
			return
		}
		names := map[string]bool{}
		for _, s := range logs.Sources {
			if names[s.Name] || slices.ContainsFunc([]rune(s.Name+s.Location), func(r rune) bool { return r == ',' }) {
				t.Errorf("%q and %q yield %+v", one, two, logs.Sources)
			}
			names[s.Name] = true
			if !strings.HasPrefix(s.Location, claimsDir) && !strings.HasPrefix(s.Location, "s3://") {
				t.Errorf("%q becomes the location %q", one, s.Location)
			}
		}
	})
}
