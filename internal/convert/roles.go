package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// framework describes the replicas of one kind of Kubeflow job and their counterparts.
type framework struct {
	// field is the field of Kubeflow's spec that holds the roles.
	field string
	// roles lists pairs of Kubeflow's role name and ours, in the order of ranks.
	roles [][2]string
	// container is the name of the main container in both APIs. port is the name of its port in Kubeflow, and newPort
	// the name in our API.
	container, port, newPort string
	// restart is Kubeflow's default restart policy of a role.
	restart string
}

// role is a role of the Kubeflow job while it is converted.
type role struct {
	// key is the role's name in the manifest. path is the role's path.
	key, path string
	// replicas is the number of replicas, 1 by default.
	replicas int64
	// spec is the role's entry in the new replicaSpecs.
	spec map[string]any
	// main is the main container in spec; nil if there is none. mainPath is its path in the manifest.
	main     map[string]any
	mainPath string
}

// roles converts the roles of a job, and returns them in the order of ranks.
func (c *conversion) roles(f *framework) []*role {
	given, _, _ := unstructured.NestedMap(c.fields, "spec", f.field)
	keys := slices.Sorted(maps.Keys(given))
	var roles []*role
	for _, known := range f.roles {
		for _, key := range keys {
			if !strings.EqualFold(key, known[0]) {
				continue
			}
			delete(given, key)
			if slices.ContainsFunc(roles, func(r *role) bool { return r.spec["type"] == known[1] }) {
				c.fail("spec."+f.field+"."+key, fmt.Sprintf("another role is also called %q here: keep one of the two", known[1]))
			}
			roles = append(roles, c.role(f, key, known[1]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		var names []string
		for _, known := range f.roles {
			names = append(names, known[0])
		}
		c.fail("spec."+f.field+"."+key, "no such role: write one of "+strings.Join(names, ", "))
	}
	if len(roles) == 0 && len(given) == 0 {
		c.fail("spec."+f.field, "the job has no roles: add one")
	}
	specs := make([]any, len(roles))
	for i, r := range roles {
		specs[i] = r.spec
	}
	c.spec["replicaSpecs"] = specs // shared with the roles, which may be completed later
	return roles
}

// restartPolicies maps Kubeflow's restart policies to ours. The names are the same, but ExitCode restarts after fewer
// exit codes here. The method role warns about this difference.
var restartPolicies = map[string]string{"Always": "Always", "OnFailure": "OnFailure", "Never": "Never", "ExitCode": "ExitCode"}

func (c *conversion) role(f *framework, key, name string) *role {
	r := &role{key: key, path: "spec." + f.field + "." + key, replicas: 1, spec: map[string]any{"type": name}}
	if n, ok := c.number("spec", f.field, key, "replicas"); ok {
		r.replicas = n
		r.spec["replicas"] = n
	}
	policy, ok := c.one(restartPolicies, "spec", f.field, key, "restartPolicy")
	if !ok {
		policy = f.restart
	}
	r.spec["restartPolicy"] = policy
	if policy == "ExitCode" {
		c.warn(r.path+".restartPolicy", "carried over, but only exit codes 130, 137, 138 and 143 lead to a restart here; in Kubeflow, all from 128 on do")
	}
	template, _ := c.take("spec", f.field, key, "template")
	r.template(c, f, template)
	return r
}

func (r *role) template(c *conversion, f *framework, given any) {
	path := r.path + ".template"
	template, ok := given.(map[string]any)
	if !ok {
		c.fail(path, "missing: describe the pods of the role")
		return
	}
	withoutNulls(template)
	c.knownOnly(template, path)
	c.podMetadata(template, path+".metadata")
	r.spec["template"] = template
	if _, ok, _ := unstructured.NestedFieldNoCopy(template, "spec", "restartPolicy"); ok {
		unstructured.RemoveNestedField(template, "spec", "restartPolicy")
		c.warn(path+".spec.restartPolicy", "left out: the restartPolicy of the role decides, as in Kubeflow")
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(template, "spec", "containers")
	list, _ := containers.([]any)
	for i := range list {
		container, ok := list[i].(map[string]any)
		if ok && (container["name"] == f.container || r.main == nil) {
			r.main, r.mainPath = container, fmt.Sprintf("%s.spec.containers[%d]", path, i)
		}
		if r.main != nil && r.main["name"] == f.container {
			break
		}
	}
	if r.main == nil {
		c.fail(path+".spec.containers", "missing: describe the container that trains")
		return
	}
	if r.main["name"] != f.container {
		c.fail(path+".spec.containers", fmt.Sprintf("none is called %q: give this name to the container that trains", f.container))
	}
	r.ports(c, f)
}

// ports renames the port at which replicas find each other.
func (r *role) ports(c *conversion, f *framework) {
	list, _ := r.main["ports"].([]any)
	renamed, taken := false, -1
	for i := range list {
		if port, ok := list[i].(map[string]any); ok && port["name"] == f.port {
			port["name"], renamed = f.newPort, true
		} else if ok && port["name"] == f.newPort {
			taken = i
		}
	}
	switch {
	case taken < 0:
	case renamed:
		c.fail(fmt.Sprintf("%s.ports[%d].name", r.mainPath, taken), fmt.Sprintf("%q becomes %q, and another port has this name: rename the other one",
			f.port, f.newPort))
	default:
		c.warn(fmt.Sprintf("%s.ports[%d].name", r.mainPath, taken), fmt.Sprintf("here, %q is the name of the port by which replicas find each other, "+
			"which is %q in Kubeflow: rename this port if it has another purpose", f.newPort, f.port))
	}
}

// podMetadata removes the parts of a template's metadata that do not apply to pods, with a note for each.
func (c *conversion) podMetadata(template map[string]any, path string) {
	meta, _ := template["metadata"].(map[string]any)
	for field := range meta {
		if field != "labels" && field != "annotations" && field != "finalizers" {
			delete(meta, field)
			c.warn(path+"."+field, "left out: pods take only labels, annotations and finalizers from their template")
		}
	}
	if meta != nil && len(meta) == 0 {
		delete(template, "metadata")
	}
}

// withoutNulls removes null fields, which mean the same as absent ones. API servers write such fields into templates.
func withoutNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			if v[key] == nil {
				delete(v, key)
			}
			withoutNulls(v[key])
		}
	case []any:
		for i := range v {
			withoutNulls(v[i])
		}
	}
}

var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// knownOnly removes the fields from a pod template that pods do not have, with a note for each.
func (c *conversion) knownOnly(template map[string]any, path string) {
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(template, &corev1.PodTemplateSpec{}, true)
	strict, ok := runtime.AsStrictDecodingError(err)
	switch {
	case err == nil:
		return
	case !ok:
		c.fail(path, err.Error())
		return
	}
	for _, e := range strict.Errors() {
		m := unknownField.FindStringSubmatch(e.Error())
		if m == nil {
			c.fail(path, e.Error())
			continue
		}
		remove(template, m[1])
		c.warn(path+"."+m[1], "left out: pods have no such field; check its name")
	}
}

// remove removes a field, if it exists. Its path may contain list indices: spec.containers[0].image.
func remove(v any, path string) {
	steps := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	for i, step := range steps {
		switch at := v.(type) {
		case map[string]any:
			if i == len(steps)-1 {
				delete(at, step)
			}
			v = at[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(at) {
				return
			}
			v = at[n]
		default:
			return
		}
	}
}
