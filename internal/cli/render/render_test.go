package render_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/internal/cli/clitest"
	"tensorstack.dev/batch/internal/testing/golden"
)

func TestRenderPrintsTheObjectsOfAJob(t *testing.T) {
	t.Chdir("..")
	for _, name := range []string{"torchrun", "tensorflow"} {
		args := []string{"render", "-f", "testdata/render/" + name + ".yaml"}
		out, errOut, code := clitest.Call(t, cli.Main, "", args...)
		golden.Compare(t, "testdata/render/"+name+".yaml.txt", clitest.Transcript(args, out, errOut, code))
	}
	for _, format := range []string{"yaml", "json"} {
		args := []string{"render", "-f", "testdata/render/gang.yaml", "-o", format}
		out, errOut, code := clitest.Call(t, cli.Main, "", args...)
		golden.Compare(t, "testdata/render/gang."+format+".txt", clitest.Transcript(args, out, errOut, code))
		if format == "json" {
			var list struct {
				APIVersion, Kind string
				Items            []map[string]any
			}
			if err := json.Unmarshal([]byte(out), &list); err != nil || list.Kind != "List" || list.APIVersion != "v1" || len(list.Items) != 5 {
				t.Errorf("not a v1 List of 5 objects: %v, %s of %d", err, list.Kind, len(list.Items))
			}
		}
	}
}

func TestRenderRefusesInvalidJobs(t *testing.T) {
	t.Chdir("..")
	out, errOut, code := clitest.Call(t, cli.Main, "", "render", "-f", "testdata/validate/code.yaml")
	if code != 1 || out != "" || !strings.Contains(errOut, ": spec.successRules[0]") {
		t.Errorf("exit code %d, output:\n%s%s", code, out, errOut)
	}
}
