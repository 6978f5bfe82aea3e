package main

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mostKeys is the largest number of labels, and of annotations, in a template. The cost of rules that read each of
// them must be bounded.
const mostKeys = 256

// reservedPrefixes are the prefixes of the keys of labels and annotations that only the operator sets.
// internal/engine has the same list.
var reservedPrefixes = []string{"tensorstack.dev/", "batch.tensorstack.dev/", "scheduler.tensorstack.dev/"}

// gang is a CEL expression that is true if a job asks for the t9k-scheduler.
const gang = "(has(self.spec.scheduler) && has(self.spec.scheduler.t9kScheduler))"

// longestValue is the largest length of a label's value.
const longestValue = 63

// boundKeys limits the number of labels and annotations of a template.
func boundKeys(template *yaml.Node) {
	for _, keys := range []string{"labels", "annotations"} {
		set(value(template, "properties", "metadata", "properties", keys), "maxProperties", mostKeys)
	}
	set(value(template, "properties", "metadata", "properties", "labels", "additionalProperties"), "maxLength", longestValue)
}

// templateRules forbid templates to set what the spec sets: the labels and annotations by which the operator and the
// scheduler recognise pods, the t9k-scheduler as the scheduler, and, with the t9k-scheduler, the node.
func (j job) templateRules(kind string) []rule {
	keys := "the pods of a job get the labels and annotations of tensorstack.dev, batch.tensorstack.dev and scheduler.tensorstack.dev from the operator: " +
		"leave them out of the templates, and name a queue in spec.scheduler.t9kScheduler.queue"
	labels, annotations := strangeKeys("labels", " && r.template.metadata.labels[k] != "+says(kind)), strangeKeys("annotations", "")
	node := "the t9k-scheduler chooses the nodes of the job's pods, within the queue's quota: leave nodeName out of the templates, and choose nodes by nodeSelector or affinity"
	return []rule{{
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message:           keys,
		MessageExpression: fmt.Sprintf("'%s; found %%s'.format([self.spec.replicaSpecs.map(r, %s + %s).filter(l, size(l) > 0)])", keys, labels, annotations),
		Rule:              isNew + fmt.Sprintf("self.spec.replicaSpecs.all(r, size(%s) + size(%s) == 0)", labels, annotations),
	}, {
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message: "a job comes to the t9k-scheduler by spec.scheduler.t9kScheduler: name the queue there, and leave schedulerName out of the templates",
		Rule:    isNew + gang + " || self.spec.replicaSpecs.all(r, !has(r.template.spec.schedulerName) || r.template.spec.schedulerName != 't9k-scheduler')",
	}, {
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message: node,
		Rule:    isNew + "!" + gang + " || self.spec.replicaSpecs.all(r, !has(r.template.spec.nodeName) || r.template.spec.nodeName == '')",
	}}
}

// strangeKeys is a CEL expression for the reserved keys k of a role r's labels or annotations for which more holds,
// too.
func strangeKeys(of, more string) string {
	var ours []string
	for _, prefix := range reservedPrefixes {
		ours = append(ours, fmt.Sprintf("k.startsWith('%s')", prefix))
	}
	path := "r.template.metadata." + of
	return fmt.Sprintf("(has(r.template.metadata) && has(%[1]s) ? %[1]s.filter(k, (%[2]s)%[3]s) : [])", path, strings.Join(ours, " || "), more)
}

// says is a CEL expression for the value that the operator gives to label k of the pods of role r. It is '!', which
// no label can have, if the value differs between the pods.
func says(kind string) string {
	return fmt.Sprintf("(k == 'batch.tensorstack.dev/job-name' ? self.metadata.name : k == 'batch.tensorstack.dev/job-kind' ? '%s' : "+
		"k == 'batch.tensorstack.dev/replica-type' ? r.type : k == 'tensorstack.dev/component' ? '%s' : !%s ? '!' : "+
		"k == 'scheduler.tensorstack.dev/group-name' ? self.metadata.name : k == 'scheduler.tensorstack.dev/role' ? r.type : "+
		"k == 'scheduler.tensorstack.dev/queue' ? self.spec.scheduler.t9kScheduler.queue : '!')", kind, strings.ToLower(kind), gang)
}
