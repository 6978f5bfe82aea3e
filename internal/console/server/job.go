package server

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/steer"
)

// jobPage is the page of a job with its manifest, which only the API server has in full.
type jobPage struct {
	view.JobPage
	Manifest string
}

func (s *visit) job(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		s.problem(w, r, http.StatusNotFound, "No such job", err.Error())
		return
	}
	tab := r.URL.Query().Get("tab")
	manifest := ""
	if tab == "manifest" {
		manifest = s.manifest(r.Context(), j)
	}
	kind, namespace, name := j.Kind, j.GetNamespace(), j.GetName()
	s.show(w, r, content{title: name, nav: "jobs", template: "job", topics: []string{live.JobTopic(kind.Name, namespace, name)}, make: func(now time.Time) any {
		j := s.Cache.Job(kind, namespace, name)
		if j == nil {
			return nil
		}
		return &jobPage{view.JobOf(s.Cache.Input(j, now), tab), manifest}
	}, moves: func() bool {
		j := s.Cache.Job(kind, namespace, name)
		if j == nil {
			return false
		}
		finished, _ := observed.Finished(j.Status())
		return !finished
	}})
}

// manifest returns the job's manifest as YAML, or why it cannot be shown.
func (s *visit) manifest(ctx context.Context, j *observed.Job) string {
	raw, err := s.steer.Read(ctx, j)
	if err != nil {
		return "# " + err.Error()
	}
	data, err := yaml.Marshal(steer.Manifest(raw).Object)
	if err != nil {
		return "# " + err.Error()
	}
	return string(bytes.TrimSpace(data))
}
