package kinds

import (
	"fmt"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// reserved rejects template fields that only the spec may decide: reserved labels and annotations, the t9k-scheduler as
// schedulerName, and nodeName if the t9k-scheduler places the pods. Admission checks the requester's right to the queue
// that the spec names, and to no other queue. A template may repeat the values of the spec.
func (v *validator) reserved() {
	for i := range v.job.Roles {
		role, path := &v.job.Roles[i], v.specPaths[i].Child("template")
		meta, spec := path.Child("metadata"), path.Child("spec")
		values := v.job.RoleLabels(role.Type)
		for _, key := range sortedKeys(role.Template.Labels) {
			value := role.Template.Labels[key]
			if want, ok := values[key]; engine.Reserved(key) && (!ok || want != value) {
				v.invalid(meta.Child("labels").Key(key), value, reservedAdvice(key, want))
			}
		}
		for _, key := range sortedKeys(role.Template.Annotations) {
			if engine.Reserved(key) {
				v.invalid(meta.Child("annotations").Key(key), role.Template.Annotations[key], reservedAdvice(key, ""))
			}
		}
		if role.Template.Spec.SchedulerName == scheduling.SchedulerName && v.job.Gang == nil {
			v.invalid(spec.Child("schedulerName"), scheduling.SchedulerName,
				"spec.scheduler.t9kScheduler chooses the t9k-scheduler: name the queue there")
		}
		if node := role.Template.Spec.NodeName; node != "" && v.job.Gang != nil {
			v.invalid(spec.Child("nodeName"), node, "the t9k-scheduler chooses the nodes of the job's pods, within the queue's quota: "+
				"leave nodeName out, and choose nodes by nodeSelector or affinity")
		}
	}
}

// reservedAdvice returns how to correct a template that sets a reserved key. value is the value that the operator sets;
// empty if it is not known.
func reservedAdvice(key, value string) string {
	switch {
	case value != "":
		return fmt.Sprintf("the operator sets it to %q, as the spec says: leave it out", value)
	case key == scheduling.LabelQueue:
		return "a template does not choose the queue: name it in spec.scheduler.t9kScheduler.queue"
	}
	return "the operator sets this key itself: leave it out"
}
