package kinds

import (
	"fmt"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// reserved refuses what a template says in place of the spec: the labels and annotations by which the operator and the scheduler
// know a pod, the t9k-scheduler, and a node where the t9k-scheduler is to choose one. The author of a job is asked for the right to
// the queue that the spec names, and for no other. A template may repeat what the spec says.
func (v *validator) reserved() {
	for i := range v.job.Roles {
		role, path := &v.job.Roles[i], v.specPaths[i].Child("template")
		meta, spec := path.Child("metadata"), path.Child("spec")
		says := v.job.RoleLabels(role.Type)
		for _, key := range sortedKeys(role.Template.Labels) {
			value := role.Template.Labels[key]
			if said, ok := says[key]; engine.Reserved(key) && (!ok || said != value) {
				v.invalid(meta.Child("labels").Key(key), value, reservedAdvice(key, said))
			}
		}
		for _, key := range sortedKeys(role.Template.Annotations) {
			if engine.Reserved(key) {
				v.invalid(meta.Child("annotations").Key(key), role.Template.Annotations[key], reservedAdvice(key, ""))
			}
		}
		if role.Template.Spec.SchedulerName == scheduling.SchedulerName && v.job.Gang == nil {
			v.invalid(spec.Child("schedulerName"), scheduling.SchedulerName,
				"a job comes to the t9k-scheduler by spec.scheduler.t9kScheduler: name the queue there")
		}
		if node := role.Template.Spec.NodeName; node != "" && v.job.Gang != nil {
			v.invalid(spec.Child("nodeName"), node, "the t9k-scheduler chooses the nodes of the job's pods, within the queue's quota: "+
				"leave nodeName out, and choose nodes by nodeSelector or affinity")
		}
	}
}

// reservedAdvice says how to mend a template that sets a key of the operator's; said is what the operator will set, where that is
// known.
func reservedAdvice(key, said string) string {
	switch {
	case said != "":
		return fmt.Sprintf("the operator sets it to %q, as the spec says: leave it out", said)
	case key == scheduling.LabelQueue:
		return "a template does not choose the queue: name it in spec.scheduler.t9kScheduler.queue"
	}
	return "the operator sets this key itself: leave it out"
}
