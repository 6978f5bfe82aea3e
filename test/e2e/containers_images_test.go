package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/image"
	"tensorstack.dev/batch/test/kit/namespace"
)

// pauseImage is the image of the pod sandboxes.
const pauseImage = "localhost/pause:1"

// operatorName is the name of the operator's image, without a tag.
const operatorName = "docker.io/tensorstack/t9k-operator"

// pathEnv sets PATH in the containers of shellImage and pythonImage.
const pathEnv = "PATH=/usr/local/go/bin:/usr/bin:/bin"

// importImages imports the pause image, the images that `make images` wrote, and images with programs of this machine
// for the examples, so that the node need not pull any image.
func (d *containerd) importImages(t *testing.T) {
	t.Helper()
	pause := filepath.Join(d.dir, "pause")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", pause, "./testdata/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the pause program: %v\n%s", err, out)
	}
	shell := shellImage(t, d.tools.busybox)
	d.importImage(t, image.Image{Names: []string{pauseImage}, Files: map[string]string{"pause": pause}, Entrypoint: []string{"/pause"}})
	d.importImage(t, pythonImage(t, shell))
	d.importImage(t, d.goImage(t, shell))
	for _, name := range []string{"t9k-operator", "t9k-scheduler", "t9k-console"} {
		d.ctr(t, "images", "import", filepath.Join(d.tools.images, name+".oci.tar"))
	}
	for _, name := range strings.Fields(d.ctr(t, "images", "list", "--quiet")) {
		if repository, _, _ := strings.Cut(name, ":"); repository == operatorName {
			d.ctr(t, "images", "tag", name, operatorName+":devel") // the tag that a t9k-local of `make build` uses
		}
	}
}

func (d *containerd) importImage(t *testing.T, i image.Image) {
	t.Helper()
	path := filepath.Join(d.dir, "image.tar")
	if err := image.Write(path, i); err != nil {
		t.Fatal(err)
	}
	d.ctr(t, "images", "import", path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// shellImage returns an unnamed image with the programs of busybox.
func shellImage(t *testing.T, busybox string) image.Image {
	t.Helper()
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal("listing the programs of busybox: ", err)
	}
	i := image.Image{Files: map[string]string{"bin/busybox": busybox}, Links: map[string]string{"usr/bin/env": "/bin/busybox"}, Env: []string{pathEnv}}
	for _, name := range strings.Fields(string(list)) {
		i.Links["bin/"+name] = "/bin/busybox"
	}
	delete(i.Links, "bin/busybox")
	return i
}

// pythonImage adds this machine's Python and the replacement for TensorBoard to an image. All examples that need no
// PyTorch use it, except ring.
func pythonImage(t *testing.T, shell image.Image) image.Image {
	t.Helper()
	const python = "/usr/bin/python3"
	library, err := exec.Command(python, "-c", "import os; print(os.path.dirname(os.__file__))").Output()
	if err != nil {
		require.Missing(t, python)
	}
	i := shell
	i.Names = []string{"docker.io/library/busybox:latest", "docker.io/library/python:3", "docker.io/tensorflow/tensorflow:2.19.0"}
	i.Files = maps.Clone(shell.Files)
	i.Files["usr/bin/python3"] = python
	i.Files["usr/bin/tensorboard"] = "testdata/bin/tensorboard"
	stdlib := strings.TrimSpace(string(library))
	i.Files[stdlib] = stdlib
	extensions, err := filepath.Glob(filepath.Join(stdlib, "lib-dynload", "*.so"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range librariesOf(t, append(extensions, python)...) {
		i.Files[path] = path
	}
	left := []string{"__pycache__", "test", "tests", "idlelib", "ensurepip", "lib2to3", "dist-packages", "site-packages"}
	i.Skip = func(path string, entry fs.DirEntry) bool {
		for _, name := range left {
			if entry.Name() == name {
				return true
			}
		}
		return strings.HasPrefix(entry.Name(), "config-")
	}
	return i
}

var libraryPath = regexp.MustCompile(`(/\S+) \(0x`)

// librariesOf lists the shared libraries that the loader finds for the programs.
func librariesOf(t *testing.T, programs ...string) []string {
	t.Helper()
	out, err := exec.Command("ldd", programs...).Output()
	if err != nil {
		t.Fatal("finding shared libraries: ", err)
	}
	found := map[string]bool{}
	var paths []string
	for _, m := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		if !found[m[1]] {
			found[m[1]] = true
			paths = append(paths, m[1])
		}
	}
	return paths
}

// goImage adds this machine's Go to an image, with a cache of the compiled packages that the example ring imports.
func (d *containerd) goImage(t *testing.T, shell image.Image) image.Image {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal("finding Go: ", err)
	}
	goroot, cache := strings.TrimSpace(string(root)), filepath.Join(d.dir, "go-cache")
	env := []string{"CGO_ENABLED=0", "GOPATH=/tmp/go", "GOTOOLCHAIN=local", "GOFLAGS=-trimpath", "GOROOT=" + goroot}
	run := func(args ...string) string {
		cmd := exec.Command("go", append(args, "fmt", "log", "net", "os", "strconv", "strings", "time")...)
		cmd.Env, cmd.Dir = append(append(os.Environ(), env...), "GOCACHE="+cache), d.dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v", args[0], err)
		}
		return string(out)
	}
	run("build")
	i := shell
	i.Names = []string{"docker.io/library/golang:1.26"}
	i.Files = maps.Clone(shell.Files)
	i.Files["cache"] = cache
	const sources = `{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .SFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .HFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}`
	for _, path := range strings.Fields(run("list", "-deps", "-f", sources)) {
		i.Files[path] = path
	}
	for _, path := range []string{"bin/go", "pkg/tool", "pkg/include", "go.env", "VERSION", "src/go.mod", "src/vendor/modules.txt"} {
		path = filepath.Join(goroot, path)
		i.Files[path] = path
	}
	i.Env = append(env, "GOCACHE=/cache", "PATH="+goroot+"/bin:/bin")
	return i
}

// pullPolicy makes nodes use the images that they have. By default, Kubernetes pulls images again if their names have
// no tag.
const pullPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: no-pull}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >
          Object{spec: Object.spec{
            containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "IfNotPresent"}),
            initContainers: object.spec.?initContainers.orValue([]).map(c, Object.spec.initContainers{name: c.name, imagePullPolicy: "IfNotPresent"})}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: no-pull}
spec: {policyName: no-pull}
`

// applyPullPolicy creates the objects of pullPolicy and waits until the policy is in force.
func applyPullPolicy(s *namespace.Test) {
	s.Helper()
	for _, text := range strings.Split(pullPolicy, "\n---\n") {
		o := &unstructured.Unstructured{}
		s.Must(yaml.Unmarshal([]byte(text), &o.Object))
		s.Must(s.Client.Create(s.Context(), o))
	}
	s.Await("the policy has an effect", func() error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: s.Namespace}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "busybox"}}}}
		if err := s.Client.Create(s.Context(), p, client.DryRunAll); err != nil {
			return err
		}
		if policy := p.Spec.Containers[0].ImagePullPolicy; policy != corev1.PullIfNotPresent {
			return fmt.Errorf("a pod has the pull policy %s", policy)
		}
		return nil
	})
}

// mountsBelow lists the mount points in a folder. The latest mounts come first, so that the caller can unmount them in
// this order.
func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal("listing mounts: ", err)
	}
	var points []string
	for _, m := range infos {
		points = append([]string{m.Mountpoint}, points...)
	}
	return points
}
