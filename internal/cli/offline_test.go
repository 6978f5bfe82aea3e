package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/testing/golden"
)

// call runs the program as from a shell without any kubeconfig, and returns what it wrote and its exit code.
func call(t *testing.T, stdin string, args ...string) (out, errOut string, code int) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var o, e bytes.Buffer
	code = Main(t.Context(), append([]string{"t9k"}, args...), genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &o, ErrOut: &e})
	return o.String(), e.String(), code
}

// transcript is what a call looks like in a shell.
func transcript(args []string, out, errOut string, code int) string {
	return fmt.Sprintf("$ t9k %s\n%s%s[exit code %d]\n", strings.Join(args, " "), out, prefixLines("stderr: ", errOut), code)
}

func prefixLines(prefix, text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		b.WriteString(prefix + l)
	}
	return b.String()
}

func TestValidate(t *testing.T) {
	t.Chdir("testdata/validate")
	for _, test := range []struct {
		file string
		code int
	}{
		{"good.yaml", 0}, {"good.json", 0}, {"fields.yaml", 1}, {"schema.yaml", 1}, {"code.yaml", 1}, {"training.yaml", 0}, {"training-bad.yaml", 1}, {"syntax.yaml", 1}, {"kinds.yaml", 1},
		{"others.yaml", 0}, {"others-bad.yaml", 1}, {"one-round.yaml", 1}, {"wrong-types.yaml", 1}, {"lines.json", 1}, {"broken.json", 1}, {"warnings.yaml", 0},
	} {
		t.Run(test.file, func(t *testing.T) {
			args := []string{"validate", "-f", test.file}
			out, errOut, code := call(t, "", args...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			golden.Compare(t, test.file+".txt", transcript(args, out, errOut, code))
		})
	}
}

// What the API server is on record to refuse of queues and groups is refused here too.
func TestValidateQueues(t *testing.T) {
	files, err := filepath.Glob("../../test/scheduler/testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad manifests: %v", err)
	}
	for _, file := range files {
		if out, errOut, code := call(t, "", "validate", "-f", file); code != 1 || errOut != "" || !strings.HasPrefix(out, file+":") {
			t.Errorf("exit code %d\n%s%s", code, out, errOut)
		}
	}
}

// The manifests that the kinds are tested with are judged as a cluster judges them: what the API server is on record to
// refuse is refused, and what only code refuses too.
func TestValidateAgreesWithTheCluster(t *testing.T) {
	const dir = "../kinds/testdata/"
	for _, test := range []struct {
		kind string
		code int
	}{{"good", 0}, {"bad", 1}} {
		files, err := filepath.Glob(dir + test.kind + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("no manifests in %s%s: %v", dir, test.kind, err)
		}
		args := []string{"validate"}
		for _, file := range files {
			args = append(args, "-f", file)
		}
		out, errOut, code := call(t, "", args...)
		if code != test.code {
			t.Errorf("%s manifests: exit code %d\n%s%s", test.kind, code, out, errOut)
		}
		for _, file := range files {
			// A change that a live job does not take is made of two jobs that could each be created.
			change := strings.HasPrefix(filepath.Base(file), "update-")
			if said := strings.Contains(out, file+":"); said == change {
				t.Errorf("of %s something is said: %t", file, said)
			}
		}
	}
}

func TestValidateReadsStandardInput(t *testing.T) {
	manifest, err := os.ReadFile("testdata/validate/good.json")
	if err != nil {
		t.Fatal(err)
	}
	out, errOut, code := call(t, string(manifest), "validate", "-f", "-", "-f", "testdata/validate/good.yaml")
	if code != 0 || !strings.Contains(out, "genericjob/mnist is valid") || !strings.Contains(out, "genericjob/mnist- is valid") {
		t.Errorf("exit code %d, output:\n%s%s", code, out, errOut)
	}
}

func TestRender(t *testing.T) {
	for _, name := range []string{"torchrun", "tensorflow"} {
		args := []string{"render", "-f", "testdata/render/" + name + ".yaml"}
		out, errOut, code := call(t, "", args...)
		golden.Compare(t, "testdata/render/"+name+".yaml.txt", transcript(args, out, errOut, code))
	}
	for _, format := range []string{"yaml", "json"} {
		args := []string{"render", "-f", "testdata/render/gang.yaml", "-o", format}
		out, errOut, code := call(t, "", args...)
		golden.Compare(t, "testdata/render/gang."+format+".txt", transcript(args, out, errOut, code))
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

func TestRenderRefusesWhatIsWrong(t *testing.T) {
	out, errOut, code := call(t, "", "render", "-f", "testdata/validate/code.yaml")
	if code != 1 || out != "" || !strings.Contains(errOut, ": spec.successRules[0]") {
		t.Errorf("exit code %d, output:\n%s%s", code, out, errOut)
	}
}

func TestConvert(t *testing.T) {
	for _, test := range []struct {
		file string
		code int
	}{{"several.yaml", 0}, {"refused.yaml", 1}, {"invalid.yaml", 1}, {"none.yaml", 1}} {
		args := []string{"convert", "-f", "testdata/convert/" + test.file}
		out, errOut, code := call(t, "", args...)
		if code != test.code {
			t.Errorf("%s: exit code %d, want %d", test.file, code, test.code)
		}
		golden.Compare(t, "testdata/convert/"+test.file+".txt", transcript(args, out, errOut, code))
	}
}

// What comes of the manifests that the conversion is tested with is valid, rules of the schema included.
func TestConvertYieldsWhatIsValid(t *testing.T) {
	files, err := filepath.Glob("../convert/testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d manifests: %v", len(files), err)
	}
	for _, file := range files {
		out, errOut, code := call(t, "", "convert", "-f", file)
		if code != 0 {
			t.Errorf("convert -f %s: exit code %d\n%s", file, code, errOut)
			continue
		}
		if said, _, code := call(t, out, "validate", "-f", "-"); code != 0 {
			t.Errorf("what %s becomes is not valid:\n%s", file, said)
		}
	}
}

// TestFaults shows what people see who call the program wrongly, or without a cluster.
func TestFaults(t *testing.T) {
	var b strings.Builder
	for _, args := range [][]string{
		{"get"},
		{"run"},
		{"run", "-f", "missing.yaml"},
		{"run", "-f", "testdata/validate/code.yaml"},
		{"run", "-f", "testdata/validate/good.yaml", "-o", "json"},
		{"get", "-o", "table"},
		{"get", "--watch"},
		{"get", "-A", "mnist"},
		{"get", "trainingjob/mnist"},
		{"get", "--local=lab"},
		{"describe"},
		{"logs"},
		{"pause"},
		{"scale", "mnist"},
		{"scale", "mnist", "many"},
		{"scale", "--", "mnist", "-1"},
		{"debug", "maybe", "mnist"},
		{"exec", "mnist"},
		{"exec", "mnist", "ls"},
		{"exec", "mnist", "worker-0", "--", "sh"},
		{"exec", "mnist", "--"},
		{"exec", "--", "ls"},
		{"delete"},
		{"validate"},
		{"convert"},
		{"validate", "-f", "/dev/null"},
		{"frobnicate"},
		{"describ", "mnist"},
	} {
		out, errOut, code := call(t, "", args...)
		if code == 0 {
			t.Errorf("t9k %s: exit code 0", strings.Join(args, " "))
		}
		b.WriteString(transcript(args, out, errOut, code) + "\n")
	}
	golden.Compare(t, "testdata/faults.txt", b.String())
}

func TestPluginCallsItselfByKubectlsName(t *testing.T) {
	var out bytes.Buffer
	code := Main(t.Context(), []string{"/usr/bin/kubectl-t9k", "get", "--help"}, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	if code != 0 || !strings.Contains(out.String(), "kubectl t9k get [JOB...]") || strings.Contains(out.String(), "  t9k get") {
		t.Errorf("exit code %d, help:\n%s", code, &out)
	}
}

// What no cluster would take is refused before it uses up the memory of this machine.
func TestManifestsThatAreTooMuch(t *testing.T) {
	lists := strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 4500) + strings.Repeat(`]}`, 4500)
	flows := "a: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, test := range []struct{ name, manifest, want string }{
		{"lists in lists", lists, "stdin:1: the document is nested more than 100 deep"},
		{"lists in lists behind another document", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n" + flows, "stdin:5: the document is nested more than 100 deep"},
		{"a large document", "a: " + strings.Repeat("x", 4<<20), "stdin:1: the document is larger than 3 MiB"},
		{"a large file", strings.Repeat("# nothing\n", 4<<20), "reading stdin: it is larger than 32 MiB"},
		{"many documents", strings.Repeat("---\na: b\n", 20_000), "reading stdin: it has more than 10000 documents"},
		{"an anchor within itself", "a: &a [*a]\n", "stdin:1: "},
	} {
		began := time.Now()
		out, errOut, code := call(t, test.manifest, "validate", "-f", "-")
		if code != 1 || !strings.Contains(out+errOut, test.want) {
			t.Errorf("%s: exit code %d\n%.300s%.300s", test.name, code, out, errOut)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s", test.name, took)
		}
	}
}
