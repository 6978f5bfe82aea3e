package kinds

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// validator collects the errors in an object. Its methods check the parts that kinds have in common. Each message says
// how to correct the error.
type validator struct {
	// conversion is the conversion of the object, even if the object cannot be interpreted.
	*conversion
	limits Limits
	errs   field.ErrorList

	// namePath is the path of the field that names the job.
	namePath *field.Path
	// specPaths holds the path of each role's entry in replicaSpecs.
	specPaths []*field.Path
	// debugPaths and resumePaths hold the paths of the roles' entries in runMode by the index of the role.
	debugPaths, resumePaths map[int]*field.Path
	// sizeNote is appended to messages about sizes.
	sizeNote string
}

// Validate returns the errors in an object that the OpenAPI schema of its kind cannot detect.
func (k Kind) Validate(o Object, limits Limits) field.ErrorList {
	if !k.owns(o) {
		return k.wrongType(o)
	}
	v := &validator{conversion: k.conversion(o), limits: limits.withDefaults()}
	v.name(o)
	k.validate(o, v)
	v.sizes()
	if n := len(v.errs); n > maxErrors {
		v.errs = v.errs[:maxErrors]
		v.invalid(field.NewPath("spec"), fmt.Sprintf("%d errors", n), fmt.Sprintf("the first %d are listed: correct these", maxErrors))
	}
	return v.errs
}

// maxErrors is the largest number of errors that are reported for a job, because they go into a condition's message.
const maxErrors = 20

func (v *validator) invalid(path *field.Path, value any, detail string) {
	v.errs = append(v.errs, field.Invalid(path, value, detail))
}

func (v *validator) required(path *field.Path, detail string) {
	v.errs = append(v.errs, field.Required(path, detail))
}

// unsupported adds an error about a value that is not one of the valid ones.
func unsupported[T ~string](v *validator, path *field.Path, value T, valid ...T) {
	names := make([]string, len(valid))
	for i := range valid {
		names[i] = string(valid[i])
	}
	v.invalid(path, value, "not a choice here: write one of "+strings.Join(names, ", ")+", or leave it out for the default")
}

// These are the largest numbers of entries that the CRDs allow in lists.
const (
	maxRoles = 32
	maxRules = 1000
	maxPorts = 100
)

// atMost adds an error if a list is longer than the CRD allows.
func (v *validator) atMost(limit, n int, what string, path *field.Path) {
	if n > limit {
		v.invalid(path, n, fmt.Sprintf("%d %s are too many: list at most %d", n, what, limit))
	}
}

// name validates the job's name, which is also the name of its Service and the prefix of every pod's name.
func (v *validator) name(o Object) {
	name, path := nameOf(o), field.NewPath("metadata", "name")
	if o.GetName() == "" && name != "" {
		path = field.NewPath("metadata", "generateName")
	}
	v.namePath = path
	switch {
	case name == "":
		v.required(path, "give the job a name")
	case len(validation.IsDNS1123Label(name)) > 0 && len(name) <= engine.MaxNameLength:
		v.invalid(path, name, "a job's name begins the host names of its pods: use lower-case letters, digits and '-' only, with a "+
			"letter or digit at both ends")
	}
}

// role validates the next role. Kinds call it for each of their roles, in order.
func (v *validator) role(replicas *int32, template *corev1.PodTemplateSpec, path *field.Path) {
	i := len(v.specPaths)
	v.specPaths = append(v.specPaths, path)
	v.roleName(i, path.Child("type"))
	if n := replicasOf(replicas); n < 0 {
		v.invalid(path.Child("replicas"), n, "a number of replicas is 0 or more: leave replicas out for 1")
	}
	v.template(template, path.Child("template"))
}

// roleName validates the name of a role, which must differ from the names of earlier roles.
func (v *validator) roleName(i int, path *field.Path) {
	role := v.job.Roles[i].Type
	switch {
	case role == "":
		v.required(path, "give the role a name, such as worker")
	case len(validation.IsDNS1123Label(role)) > 0:
		v.invalid(path, role, "a role's name is a part of its pods' host names: use up to 63 lower-case letters, digits and '-', with a "+
			"letter or digit at both ends")
	case roleIndex(v.job, role) < i:
		v.invalid(path, role, "another role has this name: give each role its own")
	}
}

// maxCounted is the largest number of replicas of a job whose replicas are checked one by one although their number
// exceeds the limit.
const maxCounted = 100_000

// replicas validates the numbers of replicas and the names of their pods. It reports whether no number is negative and
// the total is small enough to check each replica.
func (v *validator) replicas(path *field.Path) bool {
	if len(v.job.Roles) == 0 {
		v.required(path, "a job has at least one role: add an entry with type and template")
		return true
	}
	v.atMost(maxRoles, len(v.job.Roles), "roles", path)
	v.replicaNames()
	total, limit := v.job.Replicas(), min(v.limits.MaxReplicas, maxReplicas)
	switch {
	case v.badCount:
		return false
	case total == 0:
		v.invalid(path, total, "a job has at least one replica: give one of the roles replicas of 1 or more")
	case total > limit:
		v.invalid(path, total, fmt.Sprintf("the job asks for %d replicas over all roles, and the limit is %d: ask for fewer, or have "+
			"the operator's limit raised", total, limit))
	}
	return total <= max(maxCounted, limit)
}

// replicaNames validates the longest pod name that the job can ever have.
func (v *validator) replicaNames() {
	longest := ""
	for i := range v.job.Roles {
		r := &v.job.Roles[i]
		most := r.Replicas
		if v.job.Elastic != nil {
			most = v.job.Elastic.Max
		}
		if name := v.job.PodName(r.Type, max(most-1, 0)); len(name) > len(longest) {
			longest = name
		}
	}
	if over := len(longest) - engine.MaxNameLength; over > 0 {
		v.invalid(v.namePath, v.job.Name, fmt.Sprintf("the pod %q would have a name of %d characters, and the limit "+
			"is %d: shorten the name of the job or of the role by %d", longest, len(longest), engine.MaxNameLength, over))
	}
}

// queueName validates the name of a queue, which the job's pods carry as a label.
func (v *validator) queueName(queue string, path *field.Path) {
	switch {
	case queue == "":
		v.required(path, "name the queue that the job waits in, such as default")
	case len(queue) > validation.LabelValueMaxLength:
		v.invalid(path, queue, fmt.Sprintf("the name has %d characters, and the limit is %d, as it is a label of the pods: use a queue of a "+
			"shorter name", len(queue), validation.LabelValueMaxLength))
	case len(validation.IsDNS1123Subdomain(queue)) > 0:
		v.invalid(path, queue, "no queue has such a name: use lower-case letters, digits, '-' and '.', with a letter or digit at both ends")
	}
}

// servicePorts checks the Service's ports for errors that the API server would report.
func (v *validator) servicePorts(ports []corev1.ServicePort, path *field.Path) {
	v.atMost(maxPorts, len(ports), "ports", path)
	names, numbers := map[string]bool{}, map[string]bool{}
	for i := range ports {
		p, at := &ports[i], path.Index(i)
		if p.Port < 1 || p.Port > 65535 {
			v.invalid(at.Child("port"), p.Port, "a port is a number from 1 to 65535: choose one of these")
		}
		v.servicePortName(p.Name, len(ports), names, at.Child("name"))
		switch p.Protocol {
		case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			unsupported(v, at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		}
		if p.NodePort != 0 {
			v.invalid(at.Child("nodePort"), p.NodePort, "the job's Service is headless and has no ports on nodes: leave nodePort out")
		}
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		number := fmt.Sprintf("%d/%s", p.Port, protocol)
		if numbers[number] {
			v.invalid(at.Child("port"), p.Port, "another port has this number and protocol: list each once")
		}
		numbers[number] = true
	}
}

func (v *validator) servicePortName(name string, ports int, taken map[string]bool, path *field.Path) {
	switch {
	case name == "" && ports > 1:
		v.required(path, "with more than one port, each has a name: give it one, such as http")
	case name == "":
	case len(validation.IsDNS1123Label(name)) > 0:
		v.invalid(path, name, "not a port's name: use up to 63 lower-case letters, digits and '-', with a letter or digit at both ends")
	case taken[name]:
		v.invalid(path, name, "another port has this name: give each port its own")
	}
	taken[name] = true
}

// cleanUp validates the clean-up policy and the TTL.
func (v *validator) cleanUp(policy batch.CleanUpPolicy, ttl *int32, parent *field.Path) {
	if policy != "" && !slices.Contains(cleanUpPolicies, policy) {
		unsupported(v, parent.Child("cleanUpPolicy"), policy, cleanUpPolicies...)
	}
	if ttl != nil && *ttl < 0 {
		v.invalid(parent.Child("ttlSecondsAfterFinished"), *ttl, "a time in seconds is 0 or more: leave it out to keep the job for ever")
	}
}

// scheduler validates the scheduling policy and the templates against it.
func (v *validator) scheduler(p *batch.SchedulePolicy, path *field.Path) {
	if s := orZero(p).T9kScheduler; s != nil {
		path = path.Child("t9kScheduler")
		v.queueName(s.Queue, path.Child("queue"))
		if n := orZero(s.Priority); n < minPriority || n > maxPriority {
			v.invalid(path.Child("priority"), n, "a priority is a number from 0 to 100, the highest first: choose one of these")
		}
	}
	v.reserved()
}
