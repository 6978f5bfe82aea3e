package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/internal/local"
)

// TestT9kPrefersKubeconfig verifies which cluster t9k uses: the cluster of the kubeconfig if there is one, otherwise
// the embedded cluster, and with --local always the embedded cluster.
func TestT9kPrefersKubeconfig(t *testing.T) {
	w := newSerialWorld(t)
	state := t.TempDir() // the test's name is short because the length of socket paths is limited
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("HOME", state)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	get := func(args ...string) (string, int) {
		var out strings.Builder
		code := cli.Main(t.Context(), append([]string{"t9k", "get"}, args...), genericiooptions.IOStreams{Out: &out, ErrOut: &out})
		return out.String(), code
	}

	if out, code := get(); code != 1 || !strings.Contains(out, "no embedded cluster runs") {
		t.Errorf("without any cluster: exit code %d\n%s", code, out)
	}
	kubeconfig, err := os.ReadFile(w.Env.Kubeconfig)
	w.Must(err)
	for _, name := range []string{local.DefaultName, "lab"} {
		dir, err := local.NamedDir(name)
		w.Must(err)
		w.Must(os.MkdirAll(filepath.Dir(dir.Kubeconfig()), 0o700))
		w.Must(os.WriteFile(dir.Kubeconfig(), kubeconfig, 0o600))
	}
	if out, code := get(); code != 0 || strings.Count(out, `No kubeconfig is set up: using the embedded cluster "default".`) != 1 {
		t.Errorf("with an embedded cluster: exit code %d\n%s", code, out)
	}
	if out, code := get("--local=lab"); code != 0 || strings.Contains(out, "No kubeconfig") {
		t.Errorf("with --local=lab: exit code %d\n%s", code, out)
	}
	if out, code := get("--local=none"); code != 1 || !strings.Contains(out, `t9k local up --name none`) {
		t.Errorf("with --local=none: exit code %d\n%s", code, out)
	}

	// A cluster that the kubeconfig names is used even if it does not answer.
	dead := filepath.Join(state, "dead")
	w.Must(os.WriteFile(dead, []byte(strings.ReplaceAll(string(kubeconfig), strings.TrimPrefix(w.Env.Config.Host, "https://"), "127.0.0.1:1")), 0o600))
	t.Setenv("KUBECONFIG", dead)
	if out, code := get(); code != 1 || !strings.Contains(out, "the cluster does not answer") || !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("with a kubeconfig of a dead cluster: exit code %d\n%s", code, out)
	}
	if out, code := get("--local"); code != 0 {
		t.Errorf("with --local beside a kubeconfig: exit code %d\n%s", code, out)
	}
}
