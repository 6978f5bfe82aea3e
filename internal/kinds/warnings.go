package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// Warning is a warning about a field of a valid object that has no effect, or not the effect that its author may
// expect.
type Warning struct {
	// Field is the path of the field, for example spec.runMode. Message says what is wrong and what to do.
	Field, Message string
}

// String returns the warning as admission shows it.
func (w Warning) String() string { return w.Field + ": " + w.Message }

// Warnings returns the warnings about an object, which must be valid. job is the converted object.
func (k Kind) Warnings(o Object, job *engine.Job) []Warning {
	var w warnings
	if k.warn != nil {
		w = k.warn(o, job)
	}
	if job.Pause && job.Debug {
		w.add(field.NewPath("spec", "runMode"), "pause and debug are both enabled: the job is paused")
	}
	for i := range job.Roles {
		template := field.NewPath("spec", "replicaSpecs").Index(i).Child("template")
		w.template(job, job.Roles[i].Template, template)
		w.variables(job, &job.Roles[i], template)
	}
	return w
}

type warnings []Warning

func (w *warnings) add(path *field.Path, message string) {
	*w = append(*w, Warning{path.String(), message})
}

// template warns about template fields that engine.Job.Pod overrides.
func (w *warnings) template(job *engine.Job, t *corev1.PodTemplateSpec, path *field.Path) {
	meta, spec := path.Child("metadata"), path.Child("spec")
	if t.Name != "" {
		w.add(meta.Child("name"), "ignored: pods are named JOB-ROLE-RANK")
	}
	if p := t.Spec.RestartPolicy; p != "" && p != corev1.RestartPolicyNever {
		w.add(spec.Child("restartPolicy"), "ignored: replicas are restarted by new pods, as the role's own restartPolicy says")
	}
	if t.Spec.Hostname != "" {
		w.add(spec.Child("hostname"), "ignored: a pod's host name is its own name")
	}
	if t.Spec.Subdomain != "" && job.Service != nil {
		w.add(spec.Child("subdomain"), "ignored: it is the name of the job's Service")
	}
	if t.Spec.SchedulerName != "" && job.Gang != nil && t.Spec.SchedulerName != scheduling.SchedulerName {
		w.add(spec.Child("schedulerName"), "ignored: spec.scheduler chooses the t9k-scheduler")
	}
}
