package main

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// job says in what the kinds of job differ, as far as the rules are concerned that all of them have.
type job struct {
	// kept are the fields of the spec that cannot change on a live job, roleKept those of a role.
	kept, roleKept []field
	// rules are those that no other kind has.
	rules []rule
	// most is the largest number of replicas that the role r can ever have, elastic whether another field than replicas
	// says how many there are.
	most, elastic string
}

// field is one that cannot change on a live job.
type field struct {
	path string
	// unset is what counts for the field where it is missing. Empty: it is never missing.
	unset string
}

// aSwitch stands for a switch that is off where it is missing, and may be written in its older spelling.
const aSwitch = "switch"

// isOn tells whether the switch of an object is on, in either spelling.
func isOn(object string) string {
	return fmt.Sprintf("(has(%[1]s) && (has(%[1]s.enabled) ? %[1]s.enabled : has(%[1]s.enable) && %[1]s.enable))", object)
}

// anObject stands for whatever a missing object is: equal to no object.
const anObject = "object"

var commonKept = []field{
	{"runMode.debug.replicaSpecs", "[]"},
	{"runMode.pause.resumeSpecs", "[]"},
	{"scheduler.t9kScheduler.queue", "'-'"},
}

var isElastic = isOn("self.spec.elastic") + " && " + isOn("self.spec.torchrunConfig")

// elasticRules hold an elastic job to its bounds. Of one that is not, elastic has no effect and is kept. In
// expectedReplicas 0 stands for nothing said: the scale subresource needs a number there.
func elasticRules() []rule {
	const (
		least, most, wanted = "self.spec.elastic.minReplicas", "self.spec.elastic.maxReplicas", "self.spec.elastic.expectedReplicas"
		bounds              = "an elastic job has bounds: give the least and the largest number of replicas"
		rigid               = "the job is not elastic, so it cannot be scaled: set elastic.enabled when you create it"
	)
	unsaid := wanted + " == 0 && (!oldSelf.hasValue() || " + strings.ReplaceAll(expected.of("self.spec"), "self.spec", "oldSelf.value().spec") + " == 0)"
	unless := "!(" + isElastic + ") || "
	return []rule{
		{FieldPath: ".spec.elastic.minReplicas", OptionalOldSelf: true, Message: bounds, Rule: isNew + unless + "has(" + least + ")"},
		{FieldPath: ".spec.elastic.maxReplicas", OptionalOldSelf: true, Message: bounds, Rule: isNew + unless + "has(" + most + ")"},
		{
			FieldPath: ".spec.elastic.minReplicas", OptionalOldSelf: true, Message: "more than maxReplicas: lower it, or raise maxReplicas",
			MessageExpression: "'more than maxReplicas, which is %d: lower it, or raise maxReplicas'.format([" + most + "])",
			Rule:              isNew + unless + "!has(" + least + ") || !has(" + most + ") || " + least + " <= " + most,
		},
		{
			FieldPath: ".spec.elastic.expectedReplicas", OptionalOldSelf: true,
			Message:           "outside of the bounds of this job: choose a number from minReplicas to maxReplicas",
			MessageExpression: "'outside of the bounds of this job: choose a number from %d to %d'.format([" + least + ", " + most + "])",
			Rule: unless + "!has(" + wanted + ") || !has(" + least + ") || !has(" + most + ") || " + least + " > " + most + " || " +
				unsaid + " || " + wanted + " >= " + least + " && " + wanted + " <= " + most,
		},
		{
			FieldPath: ".spec.elastic.expectedReplicas", Message: rigid,
			Rule: isElastic + " || " + expected.same("self.spec", "oldSelf.spec"),
		},
	}
}

var expected = field{"elastic.expectedReplicas", "0"}

var jobs = map[string]job{
	"GenericJob": {
		kept: append([]field{{"successRules", "[]"}, {"failureRules", "[]"}, {"service", anObject}}, commonKept...),
		roleKept: []field{{"replicas", ""}, {"restartPolicy.policy", "'OnFailure'"}, {"restartPolicy.scope", "'Replica'"},
			{"restartPolicy.exitCodes.restart", "[]"}, {"restartPolicy.exitCodes.fail", "[]"}, {"template", ""}},
		most:    "r.replicas",
		elastic: "false",
	},
	"PyTorchTrainingJob": {
		kept: append([]field{
			{"torchrunConfig.enabled", aSwitch}, {"torchrunConfig.maxRestarts", "-1"}, {"torchrunConfig.procPerNode", "''"},
			{"torchrunConfig.rdzvBackend", "'c10d'"}, {"torchrunConfig.extraOptions", "[]"},
			{"elastic.enabled", aSwitch}, {"elastic.minReplicas", "0"}, {"elastic.maxReplicas", "0"},
			{"tensorboardSpec", anObject}, {"runPolicy.restartScope", "'Replica'"},
		}, commonKept...),
		roleKept: []field{{"replicas", ""}, {"scalingWeight", "1"}, {"restartPolicy", "'OnFailure'"}, {"template", ""}},
		most:     "(" + isElastic + " && has(self.spec.elastic.maxReplicas) ? self.spec.elastic.maxReplicas : r.replicas)",
		elastic:  isElastic,
		rules:    elasticRules(),
	},
	"TensorFlowTrainingJob": {
		kept:     append([]field{{"tensorboardSpec", anObject}, {"runPolicy.restartScope", "'Replica'"}}, commonKept...),
		roleKept: []field{{"replicas", ""}, {"restartPolicy", "'OnFailure'"}, {"template", ""}},
		most:     "r.replicas",
		elastic:  "false",
	},
}

// rule is an entry of x-kubernetes-validations.
type rule struct {
	FieldPath         string `yaml:"fieldPath"`
	Message           string `yaml:"message"`
	MessageExpression string `yaml:"messageExpression,omitempty"`
	OptionalOldSelf   bool   `yaml:"optionalOldSelf,omitempty"`
	Rule              string `yaml:"rule"`
}

// addJobRules adds to the CRD of a kind of job the rules that all kinds have. They are written here once, since what
// they say of a field they say of it in two objects and then once more in the message.
func addJobRules(crd *yaml.Node) {
	kind := text(value(crd, "spec", "names", "kind"))
	j, ok := jobs[kind]
	if !ok {
		return
	}
	for _, version := range value(crd, "spec", "versions").Content {
		schema := value(version, "schema", "openAPIV3Schema")
		list := value(schema, "x-kubernetes-validations")
		if list == nil {
			list = &yaml.Node{Kind: yaml.SequenceNode}
			schema.Content = append(schema.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "x-kubernetes-validations"}, list)
		}
		rules := []rule{noDots, j.podNames(), j.someReplicas(), namesRoles("debug.replicaSpecs"), namesRoles("pause.resumeSpecs"), j.keep(), j.keepRoles()}
		for _, r := range slices.Concat(rules, j.rules, j.templateRules(kind)) {
			var n yaml.Node
			if err := n.Encode(r); err != nil {
				panic(err) // strings always encode
			}
			list.Content = append(list.Content, &n)
		}
	}
}

// isNew lets rules look at new jobs only.
const isNew = "oldSelf.hasValue() || "

var noDots = rule{
	FieldPath: ".metadata", OptionalOldSelf: true,
	Message: "a job's name begins the host names of its pods: use '-' in place of '.'",
	Rule:    isNew + "!self.metadata.name.contains('.')",
}

// podNames looks at the name of each role's last pod, which is as long as any of the role.
func (j job) podNames() rule {
	last := fmt.Sprintf("'%%s-%%s-%%s'.format([self.metadata.name, r.type, string(%s - 1)])", j.most)
	return rule{
		FieldPath: ".metadata", OptionalOldSelf: true,
		Message: "a pod's name, JOB-ROLE-RANK, has at most 63 characters: shorten the name of the job or of the role",
		MessageExpression: "'the pod %s would have a name of %s characters, and the limit is 63: shorten the name of the job or of the role by %s'" +
			".format(self.spec.replicaSpecs.filter(r, " + j.most + " > 0).map(r, " + last + ").filter(n, size(n) > 63)" +
			".map(n, [n, string(size(n)), string(size(n) - 63)])[0])",
		Rule: isNew + "self.spec.replicaSpecs.all(r, " + j.most + " == 0 || size(" + last + ") <= 63)",
	}
}

func (j job) someReplicas() rule {
	return rule{
		FieldPath: ".spec.replicaSpecs", OptionalOldSelf: true,
		Message: "a job has at least one replica: give one of the roles replicas of 1 or more",
		Rule:    isNew + j.elastic + " || self.spec.replicaSpecs.exists(s, s.replicas > 0)",
	}
}

// namesRoles holds a list of a run mode to the job's roles.
func namesRoles(list string) rule {
	message := list + " names a role that the job does not have: use roles of spec.replicaSpecs"
	return rule{
		FieldPath: ".spec.runMode", OptionalOldSelf: true,
		Message:           message,
		MessageExpression: "'" + message + ", which are %s'.format([self.spec.replicaSpecs.map(s, s.type)])",
		Rule:              isNew + field{"runMode." + list, "[]"}.of("self.spec") + ".all(m, self.spec.replicaSpecs.exists(s, s.type == m.type))",
	}
}

// isStatus tells a write of the status, which never changes the spec in the same request: the API server sees to that.
// Comparing pod templates takes milliseconds, and statuses are written often.
const isStatus = "has(self.status) != has(oldSelf.status) || has(self.status) && has(self.status.aggregate) && has(oldSelf.status.aggregate) && " +
	"(self.status.aggregate.running != oldSelf.status.aggregate.running || self.status.aggregate.pending != oldSelf.status.aggregate.pending || " +
	"self.status.aggregate.creating != oldSelf.status.aggregate.creating) || "

const newJob = "cannot change on a live job: create a new job"

// keep holds a live job to the fields of its spec, apart from its roles.
func (j job) keep() rule {
	var same, changed, names []string
	for _, f := range j.kept {
		s := f.same("self.spec", "oldSelf.spec")
		same = append(same, s)
		changed = append(changed, fmt.Sprintf("(%s ? [] : ['%s'])", s, f.path))
		names = append(names, f.path)
	}
	return rule{
		FieldPath:         ".spec",
		Message:           strings.Join(names, ", ") + " " + newJob,
		MessageExpression: "'%s " + newJob + "'.format([" + strings.Join(changed, " + ") + "])",
		Rule:              isStatus + strings.Join(same, " && "),
	}
}

// keepRoles holds a live job to its roles.
func (j job) keepRoles() rule {
	const sameRoles = "self.spec.replicaSpecs.map(s, s.type) == oldSelf.spec.replicaSpecs.map(s, s.type)"
	var same, changed []string
	for _, f := range j.roleKept {
		s := f.same("s", "o")
		same = append(same, s)
		changed = append(changed, fmt.Sprintf("self.spec.replicaSpecs.filter(s, oldSelf.spec.replicaSpecs.exists(o, o.type == s.type && !(%s)))"+
			".map(s, '%s of %%s'.format([s.type]))", s, f.path))
	}
	return rule{
		FieldPath: ".spec.replicaSpecs",
		Message:   "roles, their replicas, restart policy and template " + newJob,
		MessageExpression: sameRoles + " ? '%s " + newJob + "'.format([" + strings.Join(changed, " + ") + "]) : " +
			"'roles cannot be added, removed, renamed or reordered on a live job: create a new job'",
		Rule: isStatus + sameRoles + " && self.spec.replicaSpecs.all(s, oldSelf.spec.replicaSpecs.exists(o, o.type == s.type && " + strings.Join(same, " && ") + "))",
	}
}

// same compares a field of two objects.
func (f field) same(a, b string) string {
	if f.unset == anObject {
		return fmt.Sprintf("has(%[1]s) == has(%[2]s) && (!has(%[1]s) || %[1]s == %[2]s)", a+"."+f.path, b+"."+f.path)
	}
	return f.of(a) + " == " + f.of(b)
}

// of is the field's value in an object.
func (f field) of(object string) string {
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

func text(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}
