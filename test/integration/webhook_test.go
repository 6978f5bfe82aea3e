package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/testing/golden"
	"tensorstack.dev/batch/internal/webhook/certs"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

// givenPorts holds the last port that freeAddress has tried, and the listener that reserves the block of ports of this
// process. Its lock also prevents two tests from trying the same port.
var givenPorts struct {
	sync.Mutex
	block net.Listener
	last  int
}

// freeAddress returns an unused address of this machine. Its port is below the range from which the kernel assigns
// ports to connections and to listeners that name no port, and in a block of ports that no other test process uses.
func freeAddress(t *testing.T) string {
	t.Helper()
	const lowest, highest, size = 12_000, 30_000, 600
	givenPorts.Lock()
	defer givenPorts.Unlock()
	for first := lowest; givenPorts.block == nil; first += size {
		if first >= highest {
			t.Fatal("no block of ports is free")
		}
		// The process keeps the first port of its block open, so that no other process uses the block.
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			givenPorts.block, givenPorts.last = l, first
		}
	}
	first := givenPorts.block.Addr().(*net.TCPAddr).Port
	for range size {
		givenPorts.last = first + 1 + (givenPorts.last-first)%(size-1)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", givenPorts.last))
		if err == nil {
			l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// installWebhook makes the API server call the webhook at an address until the end of the test. The Secret for the
// certificate is initially empty.
func (w *world) installWebhook(address string) {
	w.Helper()
	objects, err := config.Webhook(address)
	w.Must(err)
	for _, o := range objects {
		if o.GetKind() != "Namespace" {
			w.Cleanup(func() {
				if err := w.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
					w.Error(err)
				}
			})
		}
		o.SetManagedFields(nil)
		w.Must(client.IgnoreAlreadyExists(w.Client.Create(w.Context(), o)))
	}
}

// awaitWebhook waits until the API server calls the webhook and trusts its certificate.
func (w *world) awaitWebhook() {
	w.Helper()
	w.Await("the API server calls the webhook", func() error {
		if err := w.try(badJob("probe")); err == nil || !strings.Contains(err.Error(), "denied the request") {
			return fmt.Errorf("a bad job: %w", err)
		}
		return nil
	})
}

// try creates a job as a dry run.
func (w *world) try(job *batch.GenericJob) error {
	job.Namespace = w.Namespace
	return w.Client.Create(w.Context(), job, client.DryRunAll)
}

// badJob returns a job that the CRD accepts and the webhook refuses.
func badJob(name string) *batch.GenericJob {
	return jobs.New(name, jobs.Role("w", 1, "echo", "$(replicas[nobody])"))
}

// TestWebhookReportsAllErrors verifies that admission reports all errors of a job or of a change of it, with the
// messages of package kinds.
func TestWebhookReportsAllErrors(t *testing.T) {
	w := newWorld(t)
	address := freeAddress(t)
	w.installWebhook(address)
	startOperator(t, w.Env.Kubeconfig, "webhook: {bindAddress: '"+address+"'}")
	w.awaitWebhook()
	raw, err := dynamic.NewForConfig(w.Env.Config)
	w.Must(err)
	clientOf := func(like *unstructured.Unstructured) dynamic.ResourceInterface {
		kind, err := kinds.ByName(like.GetKind())
		w.Must(err)
		return raw.Resource(batch.GroupVersion.WithResource(kind.Plural)).Namespace(w.Namespace)
	}
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}

	t.Run("bad", func(t *testing.T) {
		denied := 0
		for _, m := range kindtest.Manifests(t, os.DirFS(kindsDir), "testdata/bad") {
			all := documents(t, m.Data)
			var err error
			if len(all) == 1 {
				all[0].SetNamespace(w.Namespace)
				_, err = clientOf(all[0]).Create(t.Context(), all[0], strict)
			} else {
				all[0].SetName("changed-" + m.Name)
				all[1].SetName("changed-" + m.Name)
				_, createErr := clientOf(all[0]).Create(t.Context(), all[0], strict)
				w.Must(createErr)
				w.Await("the operator does not write the job at the same time", func() error {
					stored, getErr := clientOf(all[0]).Get(t.Context(), all[0].GetName(), metav1.GetOptions{})
					w.Must(getErr)
					all[1].SetResourceVersion(stored.GetResourceVersion())
					if _, err = clientOf(all[1]).Update(t.Context(), all[1], metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); apierrors.IsConflict(err) {
						return err
					}
					return nil
				})
			}
			if err == nil {
				t.Errorf("%s was accepted", m.Name)
				continue
			}
			if !strings.Contains(err.Error(), "denied the request") {
				continue // the CRD refused it first
			}
			denied++
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Code != 422 || status.Status().Details == nil {
				t.Fatalf("%s: not the refusal of an invalid object: %v", m.Name, err)
			}
			var words strings.Builder
			for _, c := range status.Status().Details.Causes {
				fmt.Fprintf(&words, "%s: %s\n", c.Field, c.Message)
			}
			golden.Compare(t, kindsDir+"/testdata/bad/"+m.Name+".validate.txt", words.String())
		}
		if denied < 10 {
			t.Errorf("the webhook refused only %d", denied)
		}
	})
	t.Run("good", func(t *testing.T) {
		files := os.DirFS(kindsDir)
		for _, m := range slices.Concat(kindtest.Manifests(t, files, "testdata/good"), kindtest.Manifests(t, files, "testdata/users")) {
			job := documents(t, m.Data)[0]
			job.SetNamespace(w.Namespace)
			job.SetName("good-" + m.Name)
			if _, err := clientOf(job).Create(t.Context(), job, strict); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	})
	t.Run("warnings", w.testWarnings)
	t.Run("defaults", func(t *testing.T) { testDefaults(t, server{raw}) })
	t.Run("only new specs are validated", w.testOldErrors)
}

func (w *world) testWarnings(t *testing.T) {
	heard := &warnings{}
	c := rest.CopyConfig(w.Env.Config)
	c.WarningHandlerWithContext = heard
	talkative, err := client.New(c, client.Options{Scheme: w.Client.Scheme()})
	w.Must(err)
	job := jobs.New("odd", jobs.Role("w", 1, kubelet.Run))
	job.Namespace = w.Namespace
	job.Spec.ReplicaSpecs[0].Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	job.Spec.ReplicaSpecs[0].Template.Name = "mine"
	w.Must(talkative.Create(t.Context(), job, client.DryRunAll))
	want := []string{
		"spec.replicaSpecs[0].template.metadata.name: ignored: pods are named JOB-ROLE-RANK",
		"spec.replicaSpecs[0].template.spec.restartPolicy: ignored: replicas are restarted by new pods, as the role's own restartPolicy says",
	}
	if got := heard.texts(); !slices.Equal(got, want) {
		t.Errorf("the warnings are %q, not %q", got, want)
	}
}

// testOldErrors verifies that a job that the webhook would refuse, but that was created without the webhook, can be
// changed and deleted.
func (w *world) testOldErrors(t *testing.T) {
	configuration := &admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "t9k-batch"}}
	var rules []admissionregistration.RuleWithOperations
	w.Update(configuration, func() { rules, configuration.Webhooks[0].Rules = configuration.Webhooks[0].Rules, nil })
	old := badJob("old")
	old.Namespace = w.Namespace
	old.Finalizers = []string{"example.org/hold"}
	w.Await("a bad job is accepted", func() error { return w.Client.Create(t.Context(), old) })
	w.Update(configuration, func() { configuration.Webhooks[0].Rules = rules })
	w.awaitWebhook()
	if j := w.awaitPhase("old", batch.JobFailed); jobs.Condition(j, batch.JobFailedCondition).Reason != batch.ReasonInvalidSpec {
		t.Errorf("the conditions are %+v", j.Status.Conditions)
	}

	w.patch("old", `{"metadata":{"labels":{"seen":"yes"}}}`)
	w.patch("old", `{"spec":{"ttlSecondsAfterFinished":100000}}`)
	w.Must(w.Client.Delete(t.Context(), old))
	w.patch("old", `{"metadata":{"finalizers":null}}`)
	w.Await("the job no longer exists", func() error { return namespace.Gone(w.Get("old", old)) })
}

// warnings collects the warnings in the answers of an API server.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) texts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// TestJobsAreAcceptedWhileWebhookIsDown verifies that users do not wait for an unavailable webhook: the CRDs' rules
// apply, and the controller reports other errors.
func TestJobsAreAcceptedWhileWebhookIsDown(t *testing.T) {
	w := newWorld(t)
	first, second := freeAddress(t), freeAddress(t)
	w.installWebhook(first)
	startOperator(t, w.Env.Kubeconfig, electing, "webhook: {bindAddress: '"+second+"'}")
	w.Create(jobs.New("leader", jobs.Role("w", 1, kubelet.Run)))
	w.awaitPhase("leader", batch.JobRunning)
	follower := startOperator(t, w.Env.Kubeconfig, electing, "webhook: {bindAddress: '"+first+"'}")
	w.awaitWebhook()
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: config.Namespace, Name: "t9k-webhook-cert"}
	w.Must(w.Client.Get(t.Context(), key, secret))
	version := secret.ResourceVersion

	configuration := &admissionregistration.ValidatingWebhookConfiguration{}
	w.Must(w.Client.Get(t.Context(), types.NamespacedName{Name: "t9k-batch"}, configuration))
	timeout := time.Duration(*configuration.Webhooks[0].TimeoutSeconds) * time.Second
	follower.Kill()
	begin := time.Now()
	w.Create(jobs.New("good", jobs.Role("w", 1, kubelet.Run)))
	w.Create(badJob("bad"))
	queued := jobs.New("queued", jobs.Role("w", 1, kubelet.Run))
	queued.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: scheduling.DefaultQueue}}
	w.Create(queued)
	if d := time.Since(begin); d >= 3*timeout { // a webhook that times out would delay each creation
		t.Errorf("three jobs took %s to be created", d)
	}
	if note, noted := queued.Annotations[scheduling.AnnotationRequestedBy]; noted {
		t.Errorf("the job records %s as the requester of its queue", note)
	}
	none := jobs.New("none", jobs.Role("w", 0, kubelet.Run))
	if err := w.try(none); !apierrors.IsInvalid(err) {
		t.Errorf("a job without replicas: %v", err)
	}
	w.awaitPhase("good", batch.JobRunning)
	w.awaitPhase("queued", batch.JobRunning)
	w.awaitPhase("bad", batch.JobFailed)

	// The leader serves the webhook with the same certificate.
	w.Must(w.Client.Patch(t.Context(), &admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "t9k-batch"}},
		client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://`+second+`/validate-jobs"}]`))))
	w.awaitWebhook()
	w.Must(w.Client.Get(t.Context(), key, secret))
	if secret.ResourceVersion != version {
		t.Error("the certificate was written again")
	}
}

// TestRotatedCertificateIsTrustedAtAllTimes runs two keepers that share one certificate, which expires after seconds.
// It verifies that the API server trusts the certificates of both at all times, and again after the webhook
// configurations have been deleted and recreated.
func TestRotatedCertificateIsTrustedAtAllTimes(t *testing.T) {
	// lifetime is the lifetime of a certificate. The keeper gives API servers a tenth of it to learn of a new
	// certificate before it serves that certificate.
	const lifetime = 24 * time.Second
	w := newWorld(t)
	address := freeAddress(t)
	w.installWebhook(address)
	key := types.NamespacedName{Namespace: config.Namespace, Name: "t9k-webhook-cert"}
	var keepers [2]*certs.Keeper
	for i := range keepers {
		k := &certs.Keeper{Client: w.Client, Secret: key, Configuration: "t9k-batch", Lifetime: lifetime}
		keepers[i] = k
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = k.Start(t.Context()) // never fails
		}()
		t.Cleanup(func() { <-ended })
	}
	var calls atomic.Int64
	listener, err := tls.Listen("tcp", address, &tls.Config{MinVersion: tls.VersionTLS13,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return keepers[calls.Add(1)%2].GetCertificate(hello)
		}})
	w.Must(err)
	no := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Denied("no") })
	server := &http.Server{Handler: &admission.Webhook{Handler: no}, ErrorLog: log.New(io.Discard, "", 0)}
	server.SetKeepAlivesEnabled(false) // so that each call checks the certificate
	t.Cleanup(func() { server.Close() })
	go func() { _ = server.Serve(listener) }() // returns after Close
	for _, k := range keepers {
		w.Await("the keeper is ready", func() error { return k.Ready(nil) })
	}
	w.awaitWebhook()

	secret := &corev1.Secret{}
	seen := map[string]bool{}
	tries := 0
	w.Await("the certificate was renewed twice", func() error {
		w.Must(w.Client.Get(t.Context(), key, secret))
		seen[string(secret.Data[corev1.TLSCertKey])] = true
		tries++
		if err := w.try(badJob("probe")); err == nil || !strings.Contains(err.Error(), "denied the request") {
			t.Errorf("the API server does not trust certificate %d: %v", len(seen), err)
		}
		if len(seen) < 3 {
			time.Sleep(100 * time.Millisecond) // the interval between requests
			return fmt.Errorf("there have been %d certificates", len(seen))
		}
		return nil
	})
	if n := calls.Load(); n < int64(tries) {
		t.Errorf("the certificate was checked %d times in %d calls", n, tries)
	}

	fresh, err := config.Webhook(address)
	w.Must(err)
	for _, configuration := range fresh[2:] {
		w.Must(w.Client.Delete(t.Context(), configuration))
		w.Must(w.Client.Create(t.Context(), configuration))
	}
	w.awaitWebhook()
}
