package kinds

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tensorstack.dev/batch/internal/engine"
)

// expander replaces the variables in the pods of one role. It maps each text with variables to the parts between which
// the rank is inserted; the parts contain the values of all other variables. A pod therefore costs one map lookup and
// one join per text. The key is the text and not its place, because the run mode decides which texts a pod has.
type expander map[string][]string

// expand replaces the variables in the pod of one rank.
func (x expander) expand(rank int, spec *corev1.PodSpec) {
	digits := strconv.Itoa(rank)
	eachText(spec, func(_ place, s *string) {
		if !strings.Contains(*s, "$(") {
			return
		}
		if parts, ok := x[*s]; ok {
			*s = strings.Join(parts, digits)
		}
	})
}

// place identifies a text in a pod's spec or in a run mode.
type place struct {
	list      string // containers or initContainers, or a run mode
	container int
	field     string // command, args or env
	index     int
}

func (p place) under(spec *field.Path) *field.Path {
	f := spec.Child(p.list).Index(p.container).Child(p.field).Index(p.index)
	if p.field == "env" {
		return f.Child("value")
	}
	return f
}

// eachText visits every text of a pod in which variables are replaced.
func eachText(spec *corev1.PodSpec, visit func(place, *string)) {
	each := func(list string, containers []corev1.Container) {
		for i := range containers {
			c := &containers[i]
			for j := range c.Command {
				visit(place{list, i, "command", j}, &c.Command[j])
			}
			for j := range c.Args {
				visit(place{list, i, "args", j}, &c.Args[j])
			}
			for j := range c.Env {
				visit(place{list, i, "env", j}, &c.Env[j].Value)
			}
		}
	}
	each("initContainers", spec.InitContainers)
	each("containers", spec.Containers)
}

// variables creates the expanders of all roles, which also cover the commands of the run modes, and makes them the
// roles' Expand. A text with a variable that cannot be resolved remains unchanged.
func (c *conversion) variables() {
	for i := range c.job.Roles {
		role := &c.job.Roles[i]
		v, x := vocabulary{c.job, role}, expander{}
		allTexts(role, func(_ place, s *string) {
			if _, ok := x[*s]; ok || !strings.Contains(*s, "$(") {
				return
			}
			if parts, bad := v.compile(*s); len(bad) == 0 && (len(parts) > 1 || parts[0] != *s) {
				x[*s] = parts
			}
		})
		if len(x) > 0 {
			role.Expand = x.expand
			if c.expanders == nil {
				c.expanders = map[int]expander{}
			}
			c.expanders[i] = x
		}
	}
}

// allTexts visits every text in which variables are replaced, in the role's template and in its run modes.
func allTexts(role *engine.Role, visit func(place, *string)) {
	eachText(&role.Template.Spec, visit)
	modeTexts(role, visit)
}

// variables reports the operator's variables that cannot be resolved in the texts of all roles: they name something
// that the job does not have, have a malformed rank, or are nested.
func (v *validator) variables() {
	for i := range v.job.Roles {
		role := &v.job.Roles[i]
		words, x := vocabulary{v.job, role}, v.expanders[i]
		allTexts(role, func(p place, s *string) {
			if _, ok := x[*s]; ok || len(v.errs) > maxErrors || !strings.Contains(*s, "$(") {
				return
			}
			_, bad := words.compile(*s)
			for _, f := range bad {
				v.invalid(v.textPath(i, p), f.ref, f.detail)
			}
		})
	}
}

// textPath returns the path of a text of a role, for an error.
func (v *validator) textPath(role int, p place) *field.Path {
	switch p.list {
	case debugMode:
		return v.debugPaths[role].Child(p.field).Index(p.index)
	case resumeMode:
		return v.resumePaths[role].Child(p.field).Index(p.index)
	}
	return p.under(v.specPaths[role].Child("template", "spec"))
}

// vocabulary holds what the texts of one role can refer to.
type vocabulary struct {
	job  *engine.Job
	role *engine.Role
}

// badReference is a variable that cannot be resolved.
type badReference struct{ ref, detail string }

// compile resolves the variables of a text. It returns the parts between which the rank is inserted; a text that is the
// same for every rank has one part. bad lists the references that cannot be resolved, up to a bound; if there are any,
// parts is meaningless. compile finds references exactly as Kubernetes does, so that both agree on which references are
// escaped.
func (v vocabulary) compile(text string) (parts []string, bad []badReference) {
	var part strings.Builder
	done := 0 // text[:done] is in parts and part
	for i := 0; i+1 < len(text); {
		if text[i] != '$' {
			i++
			continue
		}
		if text[i+1] != '(' {
			i += 2 // an escape or a lone $
			continue
		}
		length := strings.IndexByte(text[i:], ')') + 1
		if length == 0 {
			break // no later reference is closed either
		}
		ref := text[i : i+length]
		value, ours, detail := v.resolve(ref[2 : length-1])
		if detail != "" && len(bad) <= maxErrors {
			bad = append(bad, badReference{ref, detail})
		}
		if ours {
			part.WriteString(text[done:i])
			part.WriteString(value)
			done = i + length
			if ref == "$(rank)" {
				parts = append(parts, part.String())
				part.Reset()
			}
		}
		i += length
	}
	part.WriteString(text[done:])
	return append(parts, part.String()), bad
}

// resolve returns the value of a variable. ours is true if the variable is one of the operator's. detail says what is
// wrong with the variable; empty if nothing is. The value of the rank is empty, because it differs between pods.
func (v vocabulary) resolve(name string) (value string, ours bool, detail string) {
	switch name {
	case "type":
		return v.role.Type, true, ""
	case "rank":
		return "", true, ""
	}
	if rest, ok := strings.CutPrefix(name, "replicas["); ok {
		if role, ok := strings.CutSuffix(rest, "]"); ok {
			return v.replicas(role)
		}
		return nested(rest)
	}
	rest, ok := strings.CutPrefix(name, "service.")
	if !ok {
		return "", false, ""
	}
	if host, ok := strings.CutSuffix(rest, "].host"); ok {
		if role, rank, ok := strings.Cut(host, "["); ok {
			return v.host(role, rank)
		}
	}
	if port, ok := strings.CutPrefix(rest, "port["); ok {
		if port, ok := strings.CutSuffix(port, "]"); ok {
			return v.port(port)
		}
	}
	return nested(rest)
}

// nested returns the results of resolve for a name that has none of the known forms: an error if the name contains
// another variable, otherwise that the variable is not one of the operator's. Variables cannot be nested, because
// Kubernetes ends a reference at the first closing parenthesis.
func nested(name string) (string, bool, string) {
	if strings.Contains(name, "[$(") || strings.HasPrefix(name, "$(") {
		return "", true, "variables do not nest: write the role, rank or port itself between [ and ]"
	}
	return "", false, ""
}

func (v vocabulary) replicas(role string) (string, bool, string) {
	r := roleOf(v.job, role)
	if r == nil {
		return "", true, unknownRole(v.job, role)
	}
	return strconv.Itoa(r.Replicas), true, ""
}

func (v vocabulary) host(role, digits string) (string, bool, string) {
	if v.job.Service == nil {
		return "", true, "replicas have names in DNS only where the job has a service: add spec.service"
	}
	r := roleOf(v.job, role)
	if r == nil {
		return "", true, unknownRole(v.job, role)
	}
	rank, ok := parseRank(digits)
	if !ok {
		return "", true, strconv.Quote(digits) + " is not a rank: write a number such as 0"
	}
	if rank >= r.Replicas {
		return "", true, outOfRange(r)
	}
	return v.job.PodName(role, rank), true, ""
}

func (v vocabulary) port(name string) (string, bool, string) {
	if v.job.Service == nil {
		return "", true, "the job has no service: add spec.service with a port of this name"
	}
	var names []string
	for _, p := range v.job.Service.Ports {
		if p.Name == name && name != "" {
			return strconv.Itoa(int(p.Port)), true, ""
		}
		if p.Name != "" {
			names = append(names, strconv.Quote(p.Name))
		}
	}
	detail := "spec.service.ports has no port named " + strconv.Quote(name)
	if len(names) == 0 {
		return "", true, detail + ": give one of its ports this name"
	}
	return "", true, detail + ": use " + oneOf(names)
}

func unknownRole(job *engine.Job, role string) string {
	if len(job.Roles) == 0 {
		return "the job has no role " + strconv.Quote(role) + ": add it to spec.replicaSpecs"
	}
	names := make([]string, len(job.Roles))
	for i := range job.Roles {
		names[i] = strconv.Quote(job.Roles[i].Type)
	}
	return "the job has no role " + strconv.Quote(role) + ": use " + oneOf(names)
}

// oneOf returns a list of choices as text.
func oneOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + strings.Join(names, ", ")
}

func outOfRange(r *engine.Role) string {
	if r.Replicas == 0 {
		return "role " + strconv.Quote(r.Type) + " has no replicas: give it some, or do not name its ranks"
	}
	if r.Replicas == 1 {
		return "role " + strconv.Quote(r.Type) + " has one replica: use rank 0"
	}
	return fmt.Sprintf("role %q has %d replicas: use a rank from 0 to %d", r.Type, r.Replicas, r.Replicas-1)
}
