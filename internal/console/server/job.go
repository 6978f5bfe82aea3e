package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/steer"
)

// jobPage is the page of a job with its manifest, which only the API server has in full.
type jobPage struct {
	view.JobPage
	Manifest string
	Forms    []view.Link
}

func (s *visit) job(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		s.missing(w, r, err)
		return
	}
	tab := r.URL.Query().Get("tab")
	manifest := ""
	lowered := r.URL.Query().Get("form") == "lowered"
	if tab == "manifest" {
		manifest = s.manifest(r.Context(), j, lowered)
	}
	kind, namespace, name := j.Kind, j.GetNamespace(), j.GetName()
	s.show(w, r, content{title: name, nav: "jobs", template: "job", topics: []string{live.JobTopic(kind.Name, namespace, name)}, make: func(now time.Time) any {
		j := s.Cache.Job(kind, namespace, name)
		if j == nil {
			return nil
		}
		p := view.JobOf(s.Cache.Input(j, now), tab)
		return &jobPage{p, manifest, view.ManifestForms(p.Path, lowered)}
	}, moves: func() bool {
		j := s.Cache.Job(kind, namespace, name)
		if j == nil {
			return false
		}
		finished, _ := observed.Finished(j.Status())
		return !finished
	}})
}

// manifest returns the job's manifest as YAML, or what the operator creates from it, or why it cannot be shown.
func (s *visit) manifest(ctx context.Context, j *observed.Job, lowered bool) string {
	raw, err := s.steer.Read(ctx, j)
	if err != nil {
		return "# " + err.Error()
	}
	return manifestText(j.Kind, raw, lowered)
}

// manifestText returns the manifest of a stored job as YAML, or what the operator creates from it, or why it cannot be shown.
func manifestText(kind *kinds.Kind, raw *unstructured.Unstructured, lowered bool) string {
	submitted := steer.Manifest(raw)
	var text string
	var err error
	if lowered {
		text, err = loweredOf(kind, submitted)
	} else {
		text, err = asYAML(submitted)
	}
	if err != nil {
		return "# " + err.Error()
	}
	return strings.TrimSpace(text)
}

// loweredOf returns the objects that the operator creates when the job of a manifest starts, with the first pod of each
// role.
func loweredOf(kind *kinds.Kind, manifest *unstructured.Unstructured) (string, error) {
	j, err := observed.New(kind, manifest)
	if err != nil {
		return "", err
	}
	n, err := j.Normal()
	if err != nil {
		return "", fmt.Errorf("the operator creates nothing, because the job is invalid: %w", err)
	}
	n.Pause = false
	var all []string
	for object, err := range observed.Rendered(n, time.Now(), 1) {
		if err != nil {
			return "", err
		}
		text, err := asYAML(object)
		if err != nil {
			return "", err
		}
		all = append(all, text)
	}
	for i := range n.Roles {
		if more := n.Roles[i].Replicas - 1; more > 0 {
			all = append(all, fmt.Sprintf("# further pods of role %s: %d\n", n.Roles[i].Type, more))
		}
	}
	return strings.Join(all, "---\n"), nil
}

func asYAML(u *unstructured.Unstructured) (string, error) {
	data, err := yaml.Marshal(u.Object)
	if err != nil {
		return "", fmt.Errorf("writing %s as YAML: %w", u.GetName(), err)
	}
	return string(data), nil
}
