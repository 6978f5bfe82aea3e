package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// cleanUps maps Kubeflow's clean-up policies to ours.
var cleanUps = map[string]string{"None": "None", "Running": "Unfinished", "All": "All"}

// runPolicy converts the run policy: limits, clean-up, suspension and scheduling. The roles must have been converted.
func (c *conversion) runPolicy() {
	at := func(field string) []string { return []string{"spec", "runPolicy", field} }
	if policy, ok := c.one(cleanUps, at("cleanPodPolicy")...); ok {
		c.set(policy, "runPolicy", "cleanUpPolicy")
	}
	for _, field := range []string{"ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"} {
		if n, ok := c.number(at(field)...); ok {
			c.set(n, "runPolicy", field)
		}
	}
	if _, ok, _ := unstructured.NestedFieldNoCopy(c.spec, "runPolicy", "backoffLimit"); !ok && c.restarts() {
		c.warn("spec.runPolicy.backoffLimit", "not set, which means no limit in Kubeflow; here the default is 3 retries of the job: set it if 3 are too few")
	}
	if c.flag(at("suspend")...) {
		c.set(true, "runMode", "pause", "enabled")
	}
	if by, ok := c.text(at("managedBy")...); ok {
		c.warn("spec.runPolicy.managedBy", fmt.Sprintf("left out: only this operator handles the job, and not %s", by))
	}
	c.scheduling()
}

// restarts reports whether the restart policy of a role of the new job allows restarts.
func (c *conversion) restarts() bool {
	specs, _ := c.spec["replicaSpecs"].([]any)
	for _, s := range specs {
		if s.(map[string]any)["restartPolicy"] != "Never" {
			return true
		}
	}
	return false
}

// scheduling converts Kubeflow's schedulingPolicy.
func (c *conversion) scheduling() {
	const path = "spec.runPolicy.schedulingPolicy"
	queue, _ := c.text("spec", "runPolicy", "schedulingPolicy", "queue")
	gang := queue != ""
	if gang {
		c.set(queue, "scheduler", "t9kScheduler", "queue")
		c.warn(path+".queue", "carried over as the queue of the t9k-scheduler, which starts the pods together: check that the queue exists")
	}
	together := "all replicas start together; of an elastic job, minReplicas replicas"
	if !gang {
		together = "only the t9k-scheduler starts pods together: name a queue in spec.scheduler.t9kScheduler.queue"
	}
	for _, field := range [][2]string{
		{"minAvailable", "left out: " + together},
		{"minResources", "left out: the scheduler counts the requests of the pods; " + together},
		{"priorityClass", "left out: spec.scheduler.t9kScheduler.priority, from 0 to 100, orders the jobs of a queue; priorityClassName of the template still has its effect"},
		{"scheduleTimeoutSeconds", "left out: a job waits until there is room; spec.runPolicy.activeDeadlineSeconds bounds the time from its start"},
	} {
		if _, ok := c.take("spec", "runPolicy", "schedulingPolicy", field[0]); ok {
			c.warn(path+"."+field[0], field[1])
		}
	}
}
