package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/internal/webhook/certs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// renderedCharts is the directory in which tools/packaging/chart keeps the rendered chart for each file of values.
const renderedCharts = "../../tools/packaging/chart/testdata"

// TestAPIServerAcceptsRenderedChart verifies that the API server accepts the rendered charts, that these set no
// deprecated field of other projects' kinds, and that applying them again reverts nothing that the operator writes.
// TestInstallIsIdempotentAndRestricted covers the CRDs and admission policies, which are the same in the chart and in
// config/default.
func TestAPIServerAcceptsRenderedChart(t *testing.T) {
	t.Parallel()
	p := plane.Start(t, testenv.Options{Components: []string{local.Etcd, local.APIServer}})
	w := &world{&namespace.Test{T: t, Plane: p, Namespace: config.Namespace}}
	w.Must(w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: config.Namespace}}))
	others := crdsOfOthers(t)
	for _, crd := range others {
		w.Must(w.Client.Create(t.Context(), crd))
	}
	w.Await("the CRDs are established", func() error { return crdsEstablished(w) })

	files, err := filepath.Glob(filepath.Join(renderedCharts, "*.golden.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files in %s: %v", len(files), renderedCharts, err)
	}
	for _, file := range files {
		t.Run("the API server accepts "+filepath.Base(file), func(t *testing.T) {
			w := w.in(t)
			for _, o := range renderedObjects(t, file) {
				if err := w.applyRendered(o, client.DryRunAll); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				if crd := others[o.GetKind()]; crd != nil {
					checkDeprecation(t, o.GetKind(), schemaOf(t, crd, o.GroupVersionKind().Version), o.Object)
				}
			}
		})
	}
	t.Run("an upgrade or a sync reverts nothing that the operator writes", func(t *testing.T) { w.in(t).checkNoDrift() })
	t.Run("a console gets an archive, a database for it, and loses it again", func(t *testing.T) {
		w := w.in(t)
		for _, name := range []string{"console", "archive", "archive-database", "archive", "console"} {
			for _, o := range renderedObjects(t, filepath.Join(renderedCharts, name+".golden.yaml")) {
				if o.GetKind() != "Deployment" || o.GetName() != "t9k-console" {
					continue
				}
				if err := w.applyRendered(o); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

// renderedObjects returns the objects in a file of a rendered chart.
func renderedObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+string(data), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

// applyRendered applies an object by server-side apply, as helm does. Unknown fields are errors.
func (w *world) applyRendered(o *unstructured.Unstructured, opts ...client.PatchOption) error {
	w.Helper()
	data, err := json.Marshal(o.Object)
	w.Must(err)
	strict := client.WithFieldValidation(w.Client, metav1.FieldValidationStrict)
	return strict.Patch(w.Context(), o.DeepCopy(), client.RawPatch(types.ApplyPatchType, data), append(opts, client.FieldOwner("helm"))...)
}

// checkNoDrift applies the Secret and the webhook configurations of the chart, and runs the operator's certs.Keeper,
// which writes the certificate into them. It verifies that neither applying them again on the server nor a three-way
// merge in a client would change them.
func (w *world) checkNoDrift() {
	w.Helper()
	var ours []*unstructured.Unstructured
	for _, o := range renderedObjects(w.T, filepath.Join(renderedCharts, "default.golden.yaml")) {
		switch o.GetKind() {
		case "Secret", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			w.Must(w.applyRendered(o))
			ours = append(ours, o)
		}
	}
	if len(ours) != 3 {
		w.Fatalf("the chart renders %d of the three objects", len(ours))
	}
	keeper := &certs.Keeper{Client: w.Client, Configuration: "t9k-batch",
		Secret: types.NamespacedName{Namespace: config.Namespace, Name: "t9k-webhook-cert"}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = keeper.Start(w.Context()) // never fails
	}()
	w.Cleanup(func() { <-ended })
	w.Await("the webhook has a certificate", func() error { return keeper.Ready(nil) })
	before := w.versionsOf(ours)
	for _, o := range ours {
		w.Must(w.applyRendered(o))
	}
	if after := w.versionsOf(ours); after != before {
		w.Errorf("applying again changed the versions from %s to %s", before, after)
	}
	for _, o := range ours {
		w.checkThreeWayMerge(o)
	}
}

// versionsOf checks that the keeper has filled in the objects, and returns their resource versions.
func (w *world) versionsOf(objects []*unstructured.Unstructured) string {
	w.Helper()
	var versions []string
	for _, o := range objects {
		live := w.liveObject(o)
		data, err := json.Marshal(live.Object)
		w.Must(err)
		if !strings.Contains(string(data), `"tls.key":"`) && strings.Count(string(data), `"caBundle":"`) == 0 {
			w.Errorf("%s %s is not filled in: %s", o.GetKind(), o.GetName(), data)
		}
		versions = append(versions, fmt.Sprintf("%s %s", o.GetKind(), live.GetResourceVersion()))
	}
	return strings.Join(versions, ", ")
}

func (w *world) liveObject(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	w.Must(w.Client.Get(w.Context(), client.ObjectKeyFromObject(o), live))
	return live
}

// checkThreeWayMerge verifies that a three-way merge of the applied, the new and the live object changes nothing.
func (w *world) checkThreeWayMerge(o *unstructured.Unstructured) {
	w.Helper()
	applied, err := json.Marshal(o.Object)
	w.Must(err)
	live, err := json.Marshal(w.liveObject(o).Object)
	w.Must(err)
	typed := map[string]any{"Secret": &corev1.Secret{}, "ValidatingWebhookConfiguration": &admissionregistration.ValidatingWebhookConfiguration{},
		"MutatingWebhookConfiguration": &admissionregistration.MutatingWebhookConfiguration{}}[o.GetKind()]
	meta, err := strategicpatch.NewPatchMetaFromStruct(typed)
	w.Must(err)
	patch, err := strategicpatch.CreateThreeWayMergePatch(applied, applied, live, meta, true)
	w.Must(err)
	if string(patch) != "{}" {
		w.Errorf("%s %s would be changed: %s", o.GetKind(), o.GetName(), patch)
	}
}

// TestWebhookServesProvidedCertificate verifies that the operator serves the webhook with a certificate from files,
// such as those of cert-manager, and creates no certificate of its own. The roles that the chart grants in this case
// suffice for all other work on the webhooks, and grant nothing unused.
func TestWebhookServesProvidedCertificate(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	w.grantForCertManager()
	address := freeAddress(t)
	w.pointWebhook(address)
	key := types.NamespacedName{Namespace: config.Namespace, Name: "t9k-webhook-cert"}
	keeper := &certs.Keeper{Client: w.Client, Secret: key, Configuration: "t9k-batch"}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = keeper.Start(ctx) // never fails
	}()
	w.Await("the keeper is ready", func() error { return keeper.Ready(nil) })
	stop()
	<-ended
	secret := &corev1.Secret{}
	w.Must(w.Client.Get(t.Context(), key, secret))
	dir := t.TempDir()
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		w.Must(os.WriteFile(filepath.Join(dir, name), secret.Data[name], 0o600))
	}
	secret.Data = nil
	w.Must(w.Client.Update(t.Context(), secret))
	log := w.auditEnd()
	startOperator(t, w.serviceAccountKubeconfig("t9k-operator"), "webhook: {bindAddress: '"+address+"'}", "webhook: {certDir: '"+dir+"'}")
	w.awaitWebhook()
	queue := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{GenerateName: "sized-"}, Spec: scheduling.QueueSpec{ResourceShapeProfile: "small"}}
	w.Must(w.Client.Create(t.Context(), queue))
	w.deleteLater(queue)
	w.Await("the webhook of pods is registered", func() error {
		c := &admissionregistration.ValidatingWebhookConfiguration{}
		w.Must(w.Client.Get(t.Context(), types.NamespacedName{Name: "t9k-batch"}, c))
		if len(c.Webhooks) < 2 {
			return fmt.Errorf("there are %d webhooks", len(c.Webhooks))
		}
		return nil
	})
	w.checkUse(operatorUser, log, []string{"t9k-operator-webhook"}, noException)
	w.Must(w.Client.Get(t.Context(), key, secret))
	if len(secret.Data) > 0 {
		t.Error("the operator has created a certificate of its own")
	}
}

// TestOperatorCreatesQueuesOfItsFile verifies that the operator creates the queues of its file and does not change
// existing ones.
func TestOperatorCreatesQueuesOfItsFile(t *testing.T) {
	w := newWorld(t)
	there := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-there"}, Spec: scheduling.QueueSpec{Priority: 7}}
	made := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-made"}}
	for _, q := range []*scheduling.Queue{there, made} {
		w.Cleanup(func() { w.Must(client.IgnoreNotFound(w.Client.Delete(context.Background(), q))) })
	}
	w.Must(w.Client.Create(t.Context(), there))
	file := ""
	for _, q := range []*scheduling.Queue{there, made} {
		file += "---\napiVersion: scheduler.tensorstack.dev/v1beta1\nkind: Queue\nmetadata:\n  name: " + q.Name + "\nspec:\n  priority: 3\n"
	}
	path := filepath.Join(t.TempDir(), "queues.yaml")
	w.Must(os.WriteFile(path, []byte(file), 0o600))
	startOperator(t, w.Env.Kubeconfig, "queuesFile: "+path)
	w.Await("the queue is created", func() error { return w.Client.Get(t.Context(), client.ObjectKeyFromObject(made), made) })
	w.Must(w.Client.Get(t.Context(), client.ObjectKeyFromObject(there), there))
	if there.Spec.Priority != 7 || made.Spec.Priority != 3 {
		t.Errorf("priorities %d and %d", there.Spec.Priority, made.Spec.Priority)
	}
}

// grantForCertManager replaces the roles for the webhooks with those that the chart grants if cert-manager issues the
// certificate.
func (w *world) grantForCertManager() {
	w.Helper()
	isRole := func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(o.GetName(), "t9k-operator-webhook") && strings.Contains(o.GetKind(), "Role")
	}
	for _, o := range renderedObjects(w.T, filepath.Join(renderedCharts, "default.golden.yaml")) {
		if isRole(o) {
			w.Must(w.Client.Delete(w.Context(), o))
		}
	}
	secret := authorization.ResourceAttributes{Verb: "update", Resource: "secrets", Namespace: config.Namespace, Name: "t9k-webhook-cert"}
	w.awaitRight(false, secret)
	for _, o := range renderedObjects(w.T, filepath.Join(renderedCharts, "cert-manager.golden.yaml")) {
		if isRole(o) {
			w.Must(w.applyRendered(o))
			w.deleteLater(o) // other tests install config/default, which has another owner
		}
	}
	w.awaitRight(true, authorization.ResourceAttributes{Verb: "patch", Group: admissionregistration.GroupName, Resource: "validatingwebhookconfigurations", Name: "t9k-batch"})
	w.awaitRight(false, secret)
}
