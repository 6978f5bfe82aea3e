package kinds

import (
	"fmt"
	"slices"
	"strings"
)

// SchemaRule is an entry of x-kubernetes-validations in the CRD of a kind.
type SchemaRule struct {
	FieldPath         string `yaml:"fieldPath"`
	Message           string `yaml:"message"`
	MessageExpression string `yaml:"messageExpression,omitempty"`
	OptionalOldSelf   bool   `yaml:"optionalOldSelf,omitempty"`
	Rule              string `yaml:"rule"`
}

// schema holds the differences between kinds in the rules that all CRDs have.
type schema struct {
	// kept lists the immutable fields of the spec, and roleKept those of a role.
	kept, roleKept []keptField
	// rules lists the rules that only this kind has.
	rules []SchemaRule
	// most is the CEL expression for the largest number of replicas that the role r can ever have. Empty means
	// r.replicas.
	most string
	// elastic is the CEL expression that is true if a field other than replicas sets the number of replicas. Empty
	// means never.
	elastic string
}

// keptField is a field that cannot change on a live job.
type keptField struct {
	path string
	// unset is the CEL value of a missing field. Empty means that the field is never missing.
	unset string
}

// aSwitch marks a switch, which is off if it is missing and may have its older spelling.
const aSwitch = "switch"

// isOn returns the CEL expression that is true if the switch of an object is on, in either spelling.
func isOn(object string) string {
	return fmt.Sprintf("(has(%[1]s) && (has(%[1]s.enabled) ? %[1]s.enabled : has(%[1]s.enable) && %[1]s.enable))", object)
}

// anObject marks an object that has no default: a missing object equals no other object.
const anObject = "object"

// jobKept are the immutable fields of all kinds, and trainingKept those of all training jobs.
var (
	jobKept = []keptField{
		{"runMode.debug.replicaSpecs", "[]"},
		{"runMode.pause.resumeSpecs", "[]"},
		{"scheduler.t9kScheduler.queue", "'-'"},
	}
	trainingKept = append([]keptField{{"tensorboardSpec", anObject}, {"runPolicy.restartScope", "'Replica'"}}, jobKept...)
)

// SchemaRules returns the validation rules of the kind's CRD. Go code generates them, because a rule repeats each field
// for two objects and in its message.
func (k Kind) SchemaRules() []SchemaRule {
	s := k.schema
	if s.most == "" {
		s.most = "r.replicas"
	}
	if s.elastic == "" {
		s.elastic = "false"
	}
	rules := []SchemaRule{noDots, s.podNames(), s.someReplicas(), namesRoles("debug.replicaSpecs"), namesRoles("pause.resumeSpecs"), s.keep(), s.keepRoles()}
	return slices.Concat(rules, s.rules, templateRules(k.Name))
}

// isNew is the CEL prefix that restricts a rule to new jobs.
const isNew = "oldSelf.hasValue() || "

var noDots = SchemaRule{
	FieldPath: ".metadata", OptionalOldSelf: true,
	Message: "a job's name begins the host names of its pods: use '-' in place of '.'",
	Rule:    isNew + "!self.metadata.name.contains('.')",
}

// podNames checks the name of each role's last pod, which is the role's longest.
func (s schema) podNames() SchemaRule {
	last := fmt.Sprintf("'%%s-%%s-%%s'.format([self.metadata.name, r.type, string(%s - 1)])", s.most)
	return SchemaRule{
		FieldPath: ".metadata", OptionalOldSelf: true,
		Message: "a pod's name, JOB-ROLE-RANK, has at most 63 characters: shorten the name of the job or of the role",
		MessageExpression: "'the pod %s would have a name of %s characters, and the limit is 63: shorten the name of the job or of the role by %s'" +
			".format(self.spec.replicaSpecs.filter(r, " + s.most + " > 0).map(r, " + last + ").filter(n, size(n) > 63)" +
			".map(n, [n, string(size(n)), string(size(n) - 63)])[0])",
		Rule: isNew + "self.spec.replicaSpecs.all(r, " + s.most + " == 0 || size(" + last + ") <= 63)",
	}
}

func (s schema) someReplicas() SchemaRule {
	return SchemaRule{
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message: "a job has at least one replica: give one of the roles replicas of 1 or more",
		Rule:    isNew + s.elastic + " || self.spec.replicaSpecs.exists(s, s.replicas > 0)",
	}
}

// namesRoles checks that a list of a run mode names roles of the job.
func namesRoles(list string) SchemaRule {
	message := list + " names a role that the job does not have: use roles of spec.replicaSpecs"
	return SchemaRule{
		FieldPath: ".spec.runMode", OptionalOldSelf: true,
		Message:           message,
		MessageExpression: "'" + message + ", which are %s'.format([self.spec.replicaSpecs.map(s, s.type)])",
		Rule:              isNew + keptField{"runMode." + list, "[]"}.of("self.spec") + ".all(m, self.spec.replicaSpecs.exists(s, s.type == m.type))",
	}
}

// isStatus is the CEL expression that detects a write of the status. Such a request never changes the spec; the API
// server ensures that. The rules skip status writes, because comparing pod templates takes milliseconds and statuses
// are written often.
const isStatus = "has(self.status) != has(oldSelf.status) || has(self.status) && has(self.status.aggregate) && has(oldSelf.status.aggregate) && " +
	"(self.status.aggregate.running != oldSelf.status.aggregate.running || self.status.aggregate.pending != oldSelf.status.aggregate.pending || " +
	"self.status.aggregate.creating != oldSelf.status.aggregate.creating) || "

const newJob = "cannot change on a live job: create a new job"

// keep returns the rule that makes fields of the spec immutable, apart from the roles.
func (s schema) keep() SchemaRule {
	var same, changed, names []string
	for _, f := range s.kept {
		equal := f.same("self.spec", "oldSelf.spec")
		same = append(same, equal)
		changed = append(changed, fmt.Sprintf("(%s ? [] : ['%s'])", equal, f.path))
		names = append(names, f.path)
	}
	return SchemaRule{
		FieldPath:         ".spec",
		Message:           strings.Join(names, ", ") + " " + newJob,
		MessageExpression: "'%s " + newJob + "'.format([" + strings.Join(changed, " + ") + "])",
		Rule:              isStatus + strings.Join(same, " && "),
	}
}

// keepRoles returns the rule that makes the roles immutable.
func (s schema) keepRoles() SchemaRule {
	const sameRoles = "self.spec.replicaSpecs.map(s, s.type) == oldSelf.spec.replicaSpecs.map(s, s.type)"
	var same, changed []string
	for _, f := range s.roleKept {
		equal := f.same("s", "o")
		same = append(same, equal)
		changed = append(changed, fmt.Sprintf("self.spec.replicaSpecs.filter(s, oldSelf.spec.replicaSpecs.exists(o, o.type == s.type && !(%s)))"+
			".map(s, '%s of %%s'.format([s.type]))", equal, f.path))
	}
	return SchemaRule{
		FieldPath: ".spec.replicaSpecs",
		Message:   "roles, their replicas, restart policy and template " + newJob,
		MessageExpression: sameRoles + " ? '%s " + newJob + "'.format([" + strings.Join(changed, " + ") + "]) : " +
			"'roles cannot be added, removed, renamed or reordered on a live job: create a new job'",
		Rule: isStatus + sameRoles + " && self.spec.replicaSpecs.all(s, oldSelf.spec.replicaSpecs.exists(o, o.type == s.type && " + strings.Join(same, " && ") + "))",
	}
}

// same returns the CEL expression that compares the field in two objects.
func (f keptField) same(a, b string) string {
	if f.unset == anObject {
		return fmt.Sprintf("has(%[1]s) == has(%[2]s) && (!has(%[1]s) || %[1]s == %[2]s)", a+"."+f.path, b+"."+f.path)
	}
	return f.of(a) + " == " + f.of(b)
}

// of returns the CEL expression for the field's value in an object.
func (f keptField) of(object string) string {
	switch f.unset {
	case "":
		return object + "." + f.path
	case aSwitch:
		return isOn(object + "." + strings.TrimSuffix(f.path, ".enabled"))
	}
	var there []string
	for _, step := range strings.Split(f.path, ".") {
		object += "." + step
		there = append(there, "has("+object+")")
	}
	return fmt.Sprintf("(%s ? %s : %s)", strings.Join(there, " && "), object, f.unset)
}
