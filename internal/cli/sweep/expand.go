package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/manifest"
)

// plan is a sweep: its name and the jobs that belong to it.
type plan struct {
	name       string
	kind       *kinds.Kind
	parameters []parameter
	members    []*member
}

// member is a job of a sweep.
type member struct {
	settings settings
	// object is the job as it is created.
	object *unstructured.Unstructured
	// job is the job as the cluster stores it; nil before it is created and once it is deleted.
	job *kit.Job
	// deleted is true once the driver has seen that the job was deleted. The driver does not create the job again.
	deleted bool
}

// template is the manifest of a sweep. In its strings, ${NAME} stands for the value of a parameter.
type template struct {
	manifest.Doc
	checker *manifest.Checker
	kind    *kinds.Kind
	sweep   string
	// digest identifies the manifest.
	digest string
	// typed holds the paths of values that consist of one parameter and become a number or a boolean.
	typed map[string]bool
}

// readTemplate reads the manifest of a sweep, which must contain exactly one job. name is the name of the sweep; empty
// for the name of the job.
func readTemplate(open manifest.Opener, checker *manifest.Checker, file, name string) (*template, error) {
	title, docs, diags, err := manifest.ReadFile(open, file)
	switch {
	case err != nil:
		return nil, err
	case len(diags) > 0:
		return nil, errors.New(diags[0].String())
	case len(docs) != 1:
		return nil, fmt.Errorf("%s holds %d objects, and a sweep varies one job: apply the others by themselves", title, len(docs))
	}
	d := docs[0]
	t := &template{Doc: d, checker: checker, sweep: name, typed: map[string]bool{}}
	kind, err := kinds.ByName(d.Object.GetKind())
	if err != nil || d.Object.GroupVersionKind().Group != batch.GroupVersion.Group {
		return nil, fmt.Errorf("%s is not a job, and a sweep varies a job", manifest.NameOf(d.Object))
	}
	t.kind = &kind
	if t.sweep == "" {
		t.sweep = d.Object.GetName()
	}
	if t.sweep == "" {
		return nil, errors.New(d.At("metadata.name", "required, because it names the sweep; or name it with --name").String())
	}
	text, err := json.Marshal(d.Object)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", title, err)
	}
	t.digest = digest(string(text))
	return t, nil
}

// expand returns the sweep with a job for each combination of the parameters. It returns an error if a job has errors
// or if two jobs get the same name.
func (t *template) expand(ctx context.Context, parameters []parameter) (*plan, error) {
	p := &plan{name: t.sweep, kind: t.kind, parameters: parameters}
	taken := map[string]settings{}
	for i, s := range combine(parameters) {
		if i == 0 {
			if err := t.decideTypes(ctx, s); err != nil {
				return nil, err
			}
		}
		u, err := t.fill(s)
		if err != nil {
			return nil, err
		}
		if other, clash := taken[u.GetName()]; clash {
			return nil, fmt.Errorf("%s and %s make the same name: choose another name for the sweep with --name", s, other)
		}
		taken[u.GetName()] = s
		if err := t.check(ctx, u, s); err != nil {
			return nil, err
		}
		p.members = append(p.members, &member{settings: s, object: u})
	}
	return p, nil
}

// check returns the errors of one job of the sweep as one error; nil if there are none. A TTL is an error too.
func (t *template) check(ctx context.Context, u *unstructured.Unstructured, s settings) error {
	result, err := t.checker.Check(ctx, t.WithObject(u))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range result.Errors {
		errs = append(errs, fmt.Errorf("with %s: %s", s, t.At(f.Path, f.Message)))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if result.Job.TTL != nil {
		return errors.New(t.At("spec", "ttlSecondsAfterFinished would delete jobs whose results belong to the sweep, and they would run again: leave it out").String())
	}
	return nil
}

// decideTypes determines which values that consist of one parameter become a number or a boolean. It tries each of them
// with the settings s, and changes the type of the value if the job then has fewer errors than with a string.
func (t *template) decideTypes(ctx context.Context, s settings) error {
	var places []string
	visitStrings(t.Object.Object, "", func(path, text string) any {
		if value, whole := wholly(text, s); whole && literal(value) != nil {
			places = append(places, path)
		}
		return text
	})
	count := func() (int, error) {
		u, err := t.fill(s)
		if err != nil {
			return 0, err
		}
		result, err := t.checker.Check(ctx, t.WithObject(u))
		return len(result.Errors), err
	}
	least, err := count()
	if err != nil {
		return err
	}
	for _, place := range places {
		t.typed[place] = true
		now, err := count()
		if err != nil {
			return err
		}
		if now < least {
			least = now
		} else {
			delete(t.typed, place)
		}
	}
	return nil
}

// fill returns the job for some settings.
func (t *template) fill(s settings) (*unstructured.Unstructured, error) {
	var pairs []string
	for _, one := range s {
		pairs = append(pairs, "${"+one.name+"}", one.value)
	}
	replacer := strings.NewReplacer(pairs...)
	filled, _ := visitStrings(t.Object.Object, "", func(path, text string) any {
		if value, whole := wholly(text, s); whole && t.typed[path] {
			if v := literal(value); v != nil {
				return v
			}
		}
		return replacer.Replace(text)
	}).(map[string]any)
	u := &unstructured.Unstructured{Object: filled}
	unstructured.RemoveNestedField(u.Object, "metadata", "generateName")
	if err := t.addVariables(u, s); err != nil {
		return nil, err
	}
	u.SetName(jobName(t.sweep, s))
	values, err := json.Marshal(s.byName())
	if err != nil {
		return nil, fmt.Errorf("writing the parameters: %w", err)
	}
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	u.SetLabels(with(labels, batch.LabelSweep, t.sweep))
	annotations = with(annotations, batch.AnnotationParameters, string(values))
	u.SetAnnotations(with(annotations, batch.AnnotationSweepManifest, t.digest))
	return u, nil
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// wholly returns the value of a parameter if a text is exactly ${NAME} with the name of this parameter. For any other
// text, whole is false.
func wholly(text string, s settings) (value string, whole bool) {
	for _, one := range s {
		if text == "${"+one.name+"}" {
			return one.value, true
		}
	}
	return "", false
}

// literal parses a whole number or a boolean. It returns nil for any other text.
func literal(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	switch text {
	case "true", "false":
		return text == "true"
	}
	return nil
}

// visitStrings returns a copy of a value in which f has replaced every string except the keys of mappings. path is the
// path of the value.
func visitStrings(v any, path string, f func(path, text string) any) any {
	switch v := v.(type) {
	case string:
		return f(path, v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = visitStrings(v[i], fmt.Sprintf("%s[%d]", path, i), f)
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, item := range v {
			m[key] = visitStrings(item, path+"."+key, f)
		}
		return m
	}
	return v
}

// addVariables adds the parameters to the environment of all containers and init containers.
func (t *template) addVariables(u *unstructured.Unstructured, s settings) error {
	// If replicaSpecs is not a list, validation reports an error.
	roles, _, _ := unstructured.NestedSlice(u.Object, "spec", "replicaSpecs")
	for i, role := range roles {
		r, ok := role.(map[string]any)
		if !ok {
			continue
		}
		for _, list := range []string{"containers", "initContainers"} {
			containers, found, err := unstructured.NestedSlice(r, "template", "spec", list)
			if err != nil || !found {
				continue
			}
			for k, c := range containers {
				path := fmt.Sprintf("spec.replicaSpecs[%d].template.spec.%s[%d].env", i, list, k)
				if err := t.addTo(c, path, s); err != nil {
					return err
				}
			}
			if err := unstructured.SetNestedSlice(r, containers, "template", "spec", list); err != nil {
				return fmt.Errorf("adding the parameters: %w", err)
			}
		}
	}
	if len(roles) == 0 {
		return nil
	}
	if err := unstructured.SetNestedSlice(u.Object, roles, "spec", "replicaSpecs"); err != nil {
		return fmt.Errorf("adding the parameters: %w", err)
	}
	return nil
}

// addTo adds the parameters to the environment of a container. The container may already set a parameter, but only to
// the same value.
func (t *template) addTo(container any, path string, s settings) error {
	c, ok := container.(map[string]any)
	if !ok {
		return nil
	}
	env, _ := c["env"].([]any)
	var added []any // put first, because a variable can refer only to earlier ones
	for _, one := range s {
		set := false
		for i, e := range env {
			variable, ok := e.(map[string]any)
			if !ok || variable["name"] != one.name {
				continue
			}
			if set = variable["value"] == one.value; !set {
				return errors.New(t.At(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("the container sets %s, which is a parameter of the sweep: leave it out, or write ${%s} as its value", one.name, one.name)).String())
			}
		}
		if !set {
			added = append(added, map[string]any{"name": one.name, "value": one.value})
		}
	}
	c["env"] = append(added, env...)
	return nil
}
