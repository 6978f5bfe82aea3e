package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// bindVolumes runs the controller that binds claims to volumes until the test ends.
func (s *stage) bindVolumes() {
	s.Helper()
	binary, err := testenv.Binary()
	s.Must(err)
	child, err := s.Launch(binary, "kube-controller-manager", "--kubeconfig="+s.Env.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=persistentvolume-binder-controller", "--use-service-account-credentials=false")
	s.Must(err)
	s.Cleanup(child.Kill)
}

// localVolume adds a volume that exists on one node.
func (s *stage) localVolume(name, node string) {
	s.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.own(name)}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName:       s.own("local"),
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/none"}},
		NodeAffinity:           &corev1.VolumeNodeAffinity{Required: required(corev1.LabelHostname, s.own(node)).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}}
	s.Must(s.Client.Create(s.Context(), pv))
}

// claim adds a claim for one of the local volumes. The claim is bound when a pod uses it.
func (s *stage) claim(name string) {
	s.Helper()
	class := s.own("local")
	s.Must(s.Client.Create(s.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}))
}

// TestGangPlanRespectsVolumes verifies that a gang's plan respects volumes. Each pod of the gang has a claim and each
// node has one volume, so the gang fits only with one pod on each node, although one node has most of the CPUs. A gang
// whose claims do not exist waits and starts when volumes and claims are created.
func TestGangPlanRespectsVolumes(t *testing.T) {
	s := sharedStage(t)
	s.bindVolumes()
	late := storagev1.VolumeBindingWaitForFirstConsumer
	s.Must(s.Client.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.own("local")},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late}))
	s.queue("q", "", 0)
	for i, cpu := range []int{100, 4, 4} {
		s.node(fmt.Sprintf("n%d", i), cpu, nil)
		s.localVolume(fmt.Sprintf("v%d", i), fmt.Sprintf("n%d", i))
	}
	withClaim := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Name}}}}
	}
	gang := func(name string, n int) {
		for i := range n {
			s.claim(fmt.Sprintf("%s-%d", name, i))
		}
		s.group(name, "q", n, "1", withClaim)
	}
	gang("toomany", 4)
	s.awaitRefused("toomany", scheduling.ReasonNoRoom)
	gang("fits", 3)
	s.awaitBound("fits", 3)
	if nodes := s.nodesOf("fits"); len(nodes) != 3 {
		t.Errorf("the gang is on %v", nodes)
	}
	s.end("toomany")
	s.group("unclaimed", "q", 2, "1", func(p *corev1.Pod) { withClaim(p) })
	s.awaitRefused("unclaimed", scheduling.ReasonNoRoom)
	for i := range 2 {
		s.localVolume(fmt.Sprintf("w%d", i), fmt.Sprintf("n%d", i))
		s.claim(fmt.Sprintf("unclaimed-%d", i))
	}
	s.awaitSoon("unclaimed", 2)
}
