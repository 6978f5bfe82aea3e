package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/test/kit/namespace"
)

// helmBinary builds the version of Helm that tools/packaging requires, and returns its path.
var helmBinary = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "t9k", "helm")
	cmd := exec.Command("go", "build", "-o", path, "helm.sh/helm/v4/cmd/helm")
	cmd.Dir = filepath.Join(root, "tools", "packaging")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building helm: %w\n%s", err, out)
	}
	return path, nil
})

// installation is an installation of the chart.
type installation struct {
	*namespace.Test
	helm, home string
}

func newInstallation(t *testing.T, s *namespace.Test) *installation {
	t.Helper()
	helm, err := helmBinary()
	if err != nil {
		t.Fatal(err)
	}
	return &installation{s.Beside(systemNamespace), helm, t.TempDir()}
}

// run runs helm and returns its output.
func (i *installation) run(args ...string) string {
	i.Helper()
	cmd := exec.Command(i.helm, append(args, "--namespace", systemNamespace, "--kubeconfig", i.Env.Kubeconfig)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+i.home, "HELM_CONFIG_HOME="+i.home, "HELM_DATA_HOME="+i.home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		i.Fatalf("helm %v: %v\n%s\n%s", args, err, out, i.Dump())
	}
	return string(out)
}

// createNamespace creates the namespace as docs/operations.md advises.
func (i *installation) createNamespace() {
	i.Helper()
	i.Must(i.Client.Create(i.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}))
}

// apply installs a release or upgrades to it, and waits until its pods are ready and the earlier pods are deleted. The
// containers have no images here, so they need a command.
func (i *installation) apply(verb string, r release, set ...string) {
	i.Helper()
	archives := i.TempDir()
	i.run("package", r.chart, "--version", r.version, "--app-version", "v"+r.version, "--destination", archives)
	args := []string{verb, "t9k-batch", filepath.Join(archives, "t9k-batch-"+r.version+".tgz"), "--wait", "--timeout", "5m"}
	for _, program := range []string{"operator", "scheduler"} {
		args = append(args, "--set", program+".command={"+filepath.Join(r.programs, "t9k-"+program)+"}")
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	i.run(args...)
	i.checkRuns(r)
}

// checkRuns waits until exactly the pods of a release are running.
func (i *installation) checkRuns(r release) {
	i.Helper()
	i.Await("only version "+r.version+" runs", func() error {
		all, count := &corev1.PodList{}, map[string]int{}
		if err := i.Client.List(i.Context(), all, client.InNamespace(systemNamespace)); err != nil {
			return err
		}
		for _, p := range all.Items {
			if p.Status.Phase == corev1.PodRunning && p.Status.ContainerStatuses[0].Ready && p.DeletionTimestamp == nil {
				count[p.Spec.Containers[0].Image]++
			}
		}
		if tag := ":v" + r.version; len(all.Items) != 4 || count["tensorstack/t9k-operator"+tag] != 2 || count["tensorstack/t9k-scheduler"+tag] != 2 {
			return fmt.Errorf("of %d pods there are ready: %v", len(all.Items), count)
		}
		return nil
	})
}
