package integration

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/namespace"
)

// deed is an action of a user on a job. Each deed has its own job.
type deed struct {
	name string
	// mode is spec.runMode of the job as YAML; empty for none. If elastic is true, the job is an elastic
	// PyTorchTrainingJob, otherwise a GenericJob.
	mode    string
	elastic bool
	// verb is the action. If many is true, the page for several jobs sends it, otherwise the page of the job. form
	// holds the action's parameters.
	verb string
	many bool
	form url.Values
	// done reports whether the action has had its effect. job is the stored job; nil if it no longer exists.
	done func(w *world, job *unstructured.Unstructured) bool
}

// deeds holds the actions on jobs that the console's pages offer.
var deeds = []deed{
	{name: "pause", verb: "pause", done: switched("pause", true)}, {name: "resume", mode: paused, verb: "resume", done: switched("pause", false)},
	{name: "debug", verb: "debug-on", done: switched("debug", true)}, {name: "leave-debug", mode: `{debug: {enabled: true}}`, verb: "debug-off", done: switched("debug", false)},
	{name: "scale", elastic: true, verb: "scale", form: url.Values{"replicas": {"3"}}, done: func(_ *world, job *unstructured.Unstructured) bool {
		n, _, _ := unstructured.NestedInt64(job.Object, "spec", "elastic", "expectedReplicas")
		return n == 3
	}},
	{name: "rerun", verb: "rerun", form: url.Values{"name": {"copy"}}, done: func(w *world, _ *unstructured.Unstructured) bool {
		return w.stored(&deed{name: "copy"}) != nil
	}},
	{name: "delete", verb: "delete", done: deleted},
	{name: "pause-many", verb: "pause", many: true, done: switched("pause", true)}, {name: "resume-many", mode: paused, verb: "resume", many: true, done: switched("pause", false)},
	{name: "delete-many", verb: "delete", many: true, done: deleted},
}

const paused = `{pause: {enabled: true}}`

// switched returns a function that reports whether spec.runMode.NAME.enabled of a job equals on.
func switched(name string, on bool) func(*world, *unstructured.Unstructured) bool {
	return func(_ *world, job *unstructured.Unstructured) bool {
		is, _, _ := unstructured.NestedBool(job.Object, "spec", "runMode", name, "enabled")
		return is == on
	}
}

func deleted(_ *world, job *unstructured.Unstructured) bool {
	return job == nil || job.GetDeletionTimestamp() != nil
}

func (d *deed) kind() string {
	if d.elastic {
		return "PyTorchTrainingJob"
	}
	return "GenericJob"
}

// path returns the path of the page of the deed's job.
func (d *deed) path(w *world) string {
	return "/jobs/" + w.Namespace + "/" + strings.ToLower(d.kind()) + "/" + d.name
}

// object returns the deed's job for creation.
func (d *deed) object(w *world) *unstructured.Unstructured {
	w.Helper()
	spec := `{runMode: MODE, replicaSpecs: [{type: w, template: {spec: {containers: [{name: main, image: busybox}]}}}]}`
	if d.elastic {
		spec = `{runMode: MODE, elastic: {enabled: true, minReplicas: 2, maxReplicas: 4, expectedReplicas: 2}, torchrunConfig: {enabled: true, procPerNode: "1"},
			replicaSpecs: [{type: node, restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: pytorch}]}}}]}`
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": batch.GroupVersion.String(), "kind": d.kind()}}
	var content any
	mode := d.mode
	if mode == "" {
		mode = "null"
	}
	w.Must(yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "MODE", mode)), &content))
	u.Object["spec"] = content
	u.SetNamespace(w.Namespace)
	u.SetName(d.name)
	return u
}

// stored returns the job of a deed from the API server; nil if there is none.
func (w *world) stored(d *deed) *unstructured.Unstructured {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": batch.GroupVersion.String(), "kind": d.kind()}}
	err := w.Client.Get(w.Context(), types.NamespacedName{Namespace: w.Namespace, Name: d.name}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.Must(err)
	return u
}

// prepare deletes the deed's job and the job copy, which the deed rerun creates, if they exist. It then creates the
// deed's job, and waits until an admin's page of the job offers the deed.
func (d *deed) prepare(w *world, admin *person) {
	w.Helper()
	for _, gone := range []*deed{d, {name: "copy"}} {
		if u := w.stored(gone); u != nil {
			w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), u)))
			w.Await("job "+gone.name+" is gone", func() error {
				return namespace.Gone(w.Client.Get(w.Context(), client.ObjectKeyFromObject(u), u))
			})
		}
	}
	w.Must(w.Client.Create(w.Context(), d.object(w)))
	uid := `value="` + string(w.stored(d).GetUID()) + `"`
	w.Await("the console offers to "+d.name, func() error {
		code, body := admin.call(http.MethodGet, d.path(w), nil)
		if code != http.StatusOK || !strings.Contains(body, "do-"+d.verb) || !strings.Contains(body, uid) {
			return errors.New(body)
		}
		return nil
	})
}

// does performs a deed as a person and verifies the result want: "done", "forbidden", or "no such job" if the person
// may not see the job. After a deed that is done, it prepares the deed again.
func (p *person) does(d *deed, w *world, admin *person, want string) {
	p.Helper()
	path, form := d.path(w)+"/"+d.verb, d.form
	unseen := http.StatusNotFound
	if d.many {
		path, form, unseen = "/act", url.Values{"verb": {d.verb}, "job": {d.path(w)}}, http.StatusConflict
	}
	code, body := p.call(http.MethodPost, path, form)
	done := d.done(w, w.stored(d))
	switch want {
	case "done":
		if code != http.StatusSeeOther || !done {
			p.Errorf("%s in %s: %d, done: %t: %s", d.name, w.Namespace, code, done, body)
		}
		d.prepare(w, admin)
	case "forbidden":
		if code != http.StatusConflict || !strings.Contains(body, "forbidden") || !strings.Contains(body, p.name) || done {
			p.Errorf("%s in %s without the right to: %d, done: %t: %s", d.name, w.Namespace, code, done, body)
		}
	default:
		if code != unseen || !strings.Contains(body, "there is no such job, or you may not see it") || done {
			p.Errorf("%s in %s, where they may not see the job: %d, done: %t: %s", d.name, w.Namespace, code, done, body)
		}
	}
}
