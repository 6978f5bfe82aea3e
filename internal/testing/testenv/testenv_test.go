package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/audit"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/await"
)

const auditEverything = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func TestStartRunsOnlyTheAPIServer(t *testing.T) {
	env := testenv.Start(t, testenv.Options{AuditPolicy: auditEverything})
	core := kubernetes.NewForConfigOrDie(env.Config)
	ctx := t.Context()

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := core.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	groups, err := core.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	served := false
	for _, g := range groups.Groups {
		served = served || g.Name == "batch.tensorstack.dev"
	}
	if !served {
		t.Error("the CRDs are not served")
	}
	// A client may have the answer before the request is in the log.
	created := 0
	await.That(t, "the creation of the pod is in the audit log", func() bool {
		created = countAudited(t, env.AuditLog, "create", "pods")
		return created > 0
	})
	if created != 1 {
		t.Errorf("the audit log has %d creations of pods, want 1", created)
	}

	if err := env.Kill(local.Etcd); err != nil {
		t.Fatal(err)
	}
	if err := env.StopComponent(local.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := core.CoreV1().Pods("default").Get(ctx, "kept", metav1.GetOptions{}); err == nil {
		t.Error("a stopped API server answered")
	}
	if err := env.StartComponent(local.APIServer); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, env)
	if _, err := core.CoreV1().Pods("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after kills and a stop: %v", err)
	}

	dir := env.Dir
	env.Stop()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory exists after Stop: %v", err)
	}
}

func awaitReady(t *testing.T, env *testenv.Env) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := env.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func countAudited(t *testing.T, path, verb, resource string) int {
	t.Helper()
	events, err := audit.Open(path).Next()
	if err != nil {
		t.Fatal(err)
	}
	return audit.Count(events)[verb+" "+resource]
}

func TestStartClusterRunsPods(t *testing.T) {
	env := testenv.StartCluster(t, testenv.Options{})
	core := kubernetes.NewForConfigOrDie(env.Config)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "quick"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "none", Command: []string{"true"}}},
		},
	}
	if _, err := core.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the pod succeeds", func() error {
		got, err := core.CoreV1().Pods("default").Get(t.Context(), "quick", metav1.GetOptions{})
		if err == nil && got.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("it is %s", got.Status.Phase)
		}
		return err
	})
}
