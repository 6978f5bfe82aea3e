package kinds

import (
	"fmt"
	"strings"

	"tensorstack.dev/batch/internal/engine"
)

// asksForGang is the CEL expression that is true if a job uses the t9k-scheduler.
const asksForGang = "(has(self.spec.scheduler) && has(self.spec.scheduler.t9kScheduler))"

// templateRules returns the rules that keep templates from setting what the spec decides: reserved labels and
// annotations, the t9k-scheduler as scheduler and, for jobs that use it, the node.
func templateRules(kind string) []SchemaRule {
	keys := "the pods of a job get the labels and annotations of tensorstack.dev, batch.tensorstack.dev and scheduler.tensorstack.dev from the operator: " +
		"leave them out of the templates, and name a queue in spec.scheduler.t9kScheduler.queue"
	labels, annotations := reservedKeys("labels", " && r.template.metadata.labels[k] != "+operatorLabel(kind)), reservedKeys("annotations", "")
	node := "the t9k-scheduler chooses the nodes of the job's pods, within the queue's quota: leave nodeName out of the templates, and choose nodes by nodeSelector or affinity"
	return []SchemaRule{{
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message:           keys,
		MessageExpression: fmt.Sprintf("'%s; found %%s'.format([self.spec.replicaSpecs.map(r, %s + %s).filter(l, size(l) > 0)])", keys, labels, annotations),
		Rule:              isNew + fmt.Sprintf("self.spec.replicaSpecs.all(r, size(%s) + size(%s) == 0)", labels, annotations),
	}, {
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message: "spec.scheduler.t9kScheduler chooses the t9k-scheduler: name the queue there, and leave schedulerName out of the templates",
		Rule:    isNew + asksForGang + " || self.spec.replicaSpecs.all(r, !has(r.template.spec.schedulerName) || r.template.spec.schedulerName != 't9k-scheduler')",
	}, {
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message: node,
		Rule:    isNew + "!" + asksForGang + " || self.spec.replicaSpecs.all(r, !has(r.template.spec.nodeName) || r.template.spec.nodeName == '')",
	}}
}

// reservedKeys returns a CEL expression for the list of reserved keys in a role's template. The role is the variable r,
// and each key is the variable k. field is "labels" or "annotations". condition is CEL that is appended to the filter
// of the keys.
func reservedKeys(field, condition string) string {
	var prefixes []string
	for _, prefix := range engine.ReservedPrefixes {
		prefixes = append(prefixes, fmt.Sprintf("k.startsWith('%s')", prefix))
	}
	path := "r.template.metadata." + field
	return fmt.Sprintf("(has(r.template.metadata) && has(%[1]s) ? %[1]s.filter(k, (%[2]s)%[3]s) : [])", path, strings.Join(prefixes, " || "), condition)
}

// operatorLabel returns the CEL expression for the operator's value of label k on the pods of role r. It is '!', which
// no label can have, if the pods have different values or none.
func operatorLabel(kind string) string {
	return fmt.Sprintf("(k == 'batch.tensorstack.dev/job-name' ? self.metadata.name : k == 'batch.tensorstack.dev/job-kind' ? '%s' : "+
		"k == 'batch.tensorstack.dev/replica-type' ? r.type : k == 'tensorstack.dev/component' ? '%s' : !%s ? '!' : "+
		"k == 'scheduler.tensorstack.dev/group-name' ? self.metadata.name : k == 'scheduler.tensorstack.dev/role' ? r.type : "+
		"k == 'scheduler.tensorstack.dev/queue' ? self.spec.scheduler.t9kScheduler.queue : '!')", kind, strings.ToLower(kind), asksForGang)
}
