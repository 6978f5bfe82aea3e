package upgrade

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

const systemNamespace = config.Namespace

// TestJobsSurviveUpgradeAndRemoval runs 50 jobs and 10 gangs during an upgrade from the last release to this version
// and to a version with an additional field, two downgrades, an uninstallation and a new installation. The first
// upgrade adds the console with an archive. The test verifies that no job is disturbed, that each ends as intended, and
// that the uninstallation leaves the archive and exactly the objects that docs/operations.md lists.
func TestJobsSurviveUpgradeAndRemoval(t *testing.T) {
	if !*withHelm {
		t.Skip("upgrades an installation by Helm: make e2e-upgrade")
	}
	require.Root(t)
	if err := local.CheckPodSupport(); err != nil {
		require.Missing(t, err.Error())
	}
	old, this := oldRelease(t).anyoneMayRun(t), thisRelease(t, "99.0.0").anyoneMayRun(t)
	next := nextAPI(t, this, "99.1.0")

	p := plane.Start(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.DNS, local.Kubelet, local.ControllerManager}})
	s := namespace.New(t, p)
	s.AwaitServiceAccount()
	bindDefault(s)
	archive := createVolume(s)
	before, err := listing(s)
	s.Must(err)
	i, w := newInstallation(t, s), newWorkload(t, s)
	i.createNamespace()

	i.apply("install", old)
	w.start(createQueue(s))
	w.probe()
	w.checkKept()

	for _, step := range []struct {
		name    string
		to      release
		options []string
	}{
		{"upgrade", this, append([]string{reuseValues}, consoleValues...)},
		{"upgrade to an API with one more field", next, []string{reuseValues}},
		{"downgrade", this, []string{reuseValues}},
		{"downgrade to the last release", old, nil},
	} {
		t.Log(step.name)
		i.apply("upgrade", step.to, step.options...)
		w.probe()
		w.checkKept()
		if step.to.version == next.version {
			w.useNewField("running-0")
			w.checkKept()
		}
	}

	t.Log("removal")
	remains := documentedRemains(s)
	i.run("uninstall", "t9k-batch", "--wait")
	checkRemains(s, before, remains)
	checkArchive(s, archive)
	w.checkKept()

	t.Log("installation on what remained, and the end of all jobs")
	i.apply("install", this, append([]string{"--set", "crds.keep=false"}, consoleValues...)...)
	w.probe()
	w.checkKept()
	w.setPause(false)
	w.release()
	w.awaitPhases(map[string]int{"gang Succeeded": gangs, "running Succeeded": running, "elastic Succeeded": elastic,
		"paused Succeeded": paused, "restarted Succeeded": restarted, "succeeded Succeeded": succeeded, "failed Failed": failed})
	w.checkRestarts()

	t.Log("removal of everything")
	w.deleteJobs()
	w.awaitNoPods()
	i.run("uninstall", "t9k-batch", "--wait")
	s.Must(p.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}))
	checkRemains(s, before, nil)
}

// createQueue creates a queue with room for fittingGangs gangs of the workload, and returns its name. The queue has the
// name of the test's namespace, so that checkRemains does not count it as an object that the uninstallation left
// behind.
func createQueue(s *namespace.Test) string {
	s.Helper()
	room := resource.NewMilliQuantity(10*gangSize*fittingGangs+5, resource.DecimalSI)
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	q.Spec.Quota.Requests = corev1.ResourceList{corev1.ResourceCPU: *room}
	q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}
	s.Must(s.Client.Create(s.Context(), q))
	return q.Name
}

// useNewField sets the field that only the next version has, and checks that the API server stores it.
func (w *workload) useNewField(job string) {
	w.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("batch.tensorstack.dev/v1beta1")
	o.SetKind("GenericJob") // the kind of the first job
	w.Must(w.Client.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: job}, o))
	w.Must(unstructured.SetNestedField(o.Object, "text", "spec", newField))
	w.Must(w.Client.Update(w.Context(), o))
	if got, _, _ := unstructured.NestedString(o.Object, "spec", newField); got != "text" {
		w.Errorf("the new field is %q", got)
	}
}
