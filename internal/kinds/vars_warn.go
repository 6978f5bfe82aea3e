package kinds

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/nearest"
)

// variables warns about texts of one role that look like variables and are not replaced.
func (w *warnings) variables(job *engine.Job, role *engine.Role, template *field.Path) {
	v := vocabulary{job, role}
	known := v.names()
	spec := &role.Template.Spec
	eachText(spec, func(p place, text *string) {
		containers := spec.Containers
		if p.list == "initContainers" {
			containers = spec.InitContainers
		}
		for _, s := range v.suspects(*text, known, &containers[p.container]) {
			w.add(p.under(template.Child("spec")), s)
		}
	})
	mode := field.NewPath("spec", "runMode")
	each := func(texts []string, path *field.Path) {
		for i, text := range texts {
			for _, s := range v.suspects(text, known, &spec.Containers[role.Main]) {
				w.add(path.Index(i), s)
			}
		}
	}
	each(role.Debug.Command, mode.Child("debug", "replicaSpecs").Key(role.Type).Child("command"))
	each(role.Resume.Command, mode.Child("pause", "resumeSpecs").Key(role.Type).Child("command"))
	each(role.Resume.Args, mode.Child("pause", "resumeSpecs").Key(role.Type).Child("args"))
}

var digits = regexp.MustCompile(`[0-9]+`)

// names returns the variables that the job has, with every number replaced by 0.
func (v vocabulary) names() []string {
	names := []string{"type", "rank"}
	for i := range v.job.Roles {
		role := v.job.Roles[i].Type
		names = append(names, "replicas["+role+"]")
		if v.job.Service != nil {
			names = append(names, "service."+role+"[0].host")
		}
	}
	if v.job.Service != nil {
		for _, p := range v.job.Service.Ports {
			names = append(names, "service.port["+p.Name+"]")
		}
	}
	for i := range names {
		names[i] = digits.ReplaceAllString(names[i], "0")
	}
	return names
}

// suspects returns a warning for each part of a text that resembles a variable, and for each variable in a place where
// variables are not replaced. Names of environment variables of c are no suspects.
func (v vocabulary) suspects(text string, known []string, c *corev1.Container) (all []string) {
	for i := 0; i+1 < len(text); {
		switch {
		case text[i] != '$':
			i++
			continue
		case text[i+1] != '(':
			i += 2 // an escape or a lone $
			continue
		}
		length := strings.IndexByte(text[i:], ')') + 1
		if length == 0 {
			break // no later reference is closed either
		}
		name := text[i+2 : i+length-1]
		i += length
		if _, ours, _ := v.resolve(name); ours || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
			continue
		}
		if inner := strings.LastIndex(name, "$("); inner >= 0 {
			if _, ours, _ := v.resolve(name[inner+2:]); ours {
				ref := name[inner:] + ")"
				all = append(all, fmt.Sprintf("%s is not replaced inside another \"$(\": set an environment variable to it, and use that variable there", ref))
			}
			continue
		}
		if near := nearest.OneOff(digits.ReplaceAllString(name, "0"), known); near != "" {
			all = append(all, fmt.Sprintf("$(%s) is not a variable and stays as it is: did you mean $(%s)?", name, near))
		}
	}
	return all
}
