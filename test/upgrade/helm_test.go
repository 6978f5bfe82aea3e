package upgrade

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/test/kit/namespace"
)

// helmBinary builds the version of Helm that tools/packaging requires, and returns the path of the program.
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

// installation is a Helm release of the chart in systemNamespace. helm is the path of the helm program, and home is the
// directory for its cache, configuration and data.
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

// createVolume creates the volume for the console's archive, because this cluster provisions none, and returns its
// path.
func createVolume(s *namespace.Test) string {
	s.Helper()
	dir := s.TempDir()
	s.Must(os.Chmod(dir, 0o777)) //nolint:gosec // the console is not the user that runs the test
	s.Must(s.Client.Create(s.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "archive"}, Spec: corev1.PersistentVolumeSpec{
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ClaimRef:               &corev1.ObjectReference{Namespace: systemNamespace, Name: "t9k-console-archive"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
	}}))
	return dir
}

// checkArchive checks that the volume has the archive that the console wrote.
func checkArchive(s *namespace.Test, volume string) {
	s.Helper()
	if file, err := os.Stat(filepath.Join(volume, "archive.db")); err != nil || file.Size() == 0 {
		s.Errorf("the volume of the archive has no archive: %v", err)
	}
}

// consoleValues holds the options of Helm that enable the console with an archive of jobs and logs in a volume.
var consoleValues = []string{"--set", "console.enabled=true,console.archive.enabled=true,console.archive.logs=true"}

// reuseValues is the option of Helm that keeps the values of the installed release, and adds the defaults of values
// that its chart does not have.
const reuseValues = "--reset-then-reuse-values"

// apply installs a release or upgrades to it, as verb says, and waits until its pods are ready and the earlier pods
// are deleted. The containers run programs of this machine instead of images, so they need a command.
func (i *installation) apply(verb string, r release, options ...string) {
	i.Helper()
	archives := i.TempDir()
	i.run("package", r.chart, "--version", r.version, "--app-version", "v"+r.version, "--destination", archives)
	args := []string{verb, "t9k-batch", filepath.Join(archives, "t9k-batch-"+r.version+".tgz"), "--wait", "--timeout", "5m"}
	for program := range r.pods {
		args = append(args, "--set", program+".command={"+filepath.Join(r.programs, "t9k-"+program)+"}")
	}
	i.run(append(args, options...)...)
	i.checkRuns(r)
}

// checkRuns waits until exactly the pods of a release exist and are ready.
func (i *installation) checkRuns(r release) {
	i.Helper()
	want, wantAll := map[string]int{}, 0
	for program, n := range r.pods {
		want["tensorstack/t9k-"+program+":v"+r.version] = n
		wantAll += n
	}
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
		if len(all.Items) != wantAll || !maps.Equal(count, want) {
			return fmt.Errorf("of %d pods there are ready: %v, want %v", len(all.Items), count, want)
		}
		return nil
	})
}
