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

// jobPage is the page of a job with its manifest. Only the API server has the whole manifest: the cache lacks the
// fields that the Go type of the job does not have.
type jobPage struct {
	view.JobPage
	Manifest string
	Forms    []view.Link
}

func (s *visit) job(w http.ResponseWriter, r *http.Request) {
	j, err := s.find(r)
	if err != nil {
		s.missing(w, r, err, "")
		return
	}
	tab := r.URL.Query().Get("tab")
	asPods := r.URL.Query().Get("form") == "pods"
	manifest := s.manifests(context.WithoutCancel(r.Context()), asPods) // a feed outlives the request that started it
	kind, namespace, name, uid := j.Kind, j.GetNamespace(), j.GetName(), j.GetUID()
	path := view.JobPath(kind, namespace, name)
	s.show(w, r, content{title: name, nav: "jobs", template: "job", topics: []string{live.JobTopic(kind.Name, namespace, name)}, make: func(now time.Time) any {
		j := s.Cache.Job(kind, namespace, name)
		if j == nil {
			return nil
		}
		uid = j.GetUID()
		in := s.Cache.Input(j, now)
		in.OpensBoards = s.Boards != nil
		p := &jobPage{JobPage: view.JobOf(in, tab), Forms: view.ManifestForms(path, asPods)}
		if s.History != nil {
			p.LinkArchive(view.ArchivedPath(string(uid)))
		}
		if p.Tab == "manifest" {
			p.Manifest = manifest(j)
		}
		return p
	}, timeDependent: func() bool {
		j := s.Cache.Job(kind, namespace, name)
		if j == nil {
			return false
		}
		finished, _ := observed.Finished(j.Status())
		return !finished
	}, former: func() []view.Link {
		if s.History == nil {
			return nil
		}
		return []view.Link{{Text: "What the history has of it", Href: view.ArchivedPath(string(uid))}}
	}})
}

// readTime is the longest time that a page waits for a manifest.
const readTime = 10 * time.Second

// manifests returns a function that returns the text of manifestText for a job, or an error as a YAML comment. The
// function caches the text, and reads the job from the API server again only when its UID, generation, labels or
// annotations have changed. ctx must outlive the page.
func (s *visit) manifests(ctx context.Context, asPods bool) func(*observed.Job) string {
	version, text := "", ""
	return func(j *observed.Job) string {
		now := fmt.Sprint(j.GetUID(), j.GetGeneration(), j.GetLabels(), j.GetAnnotations())
		if now == version {
			return text
		}
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		raw, err := s.steer.Read(ctx, j)
		if err != nil {
			return "# " + err.Error()
		}
		version, text = now, manifestText(j.Kind, raw, asPods)
		return text
	}
}

// manifestText returns the manifest of a stored job as YAML or, if asPods is true, the objects that the operator
// creates from the manifest. If an error occurs, manifestText returns the error as a YAML comment.
func manifestText(kind *kinds.Kind, raw *unstructured.Unstructured, asPods bool) string {
	submitted := steer.Manifest(raw)
	var text string
	var err error
	if asPods {
		text, err = loweredOf(kind, submitted)
	} else {
		text, err = asYAML(submitted)
	}
	if err != nil {
		return "# " + err.Error()
	}
	return strings.TrimSpace(text)
}

// loweredOf returns, as YAML, the objects that the operator creates when the job of a manifest starts, with only the
// first pod of each role. A comment gives the number of further pods of a role.
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
