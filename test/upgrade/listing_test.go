package upgrade

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/namespace"
)

// derived holds the kinds whose objects the API server derives from other objects or deletes after a time.
var derived = []string{"APIService", "ComponentStatus", "Event"}

// listing returns the objects of the cluster as "KIND NAME". It leaves out jobs, the kinds in derived, the objects in
// the test's namespace, and objects with the name of this namespace.
func listing(s *namespace.Test) (map[string]bool, error) {
	quiet := rest.CopyConfig(s.Env.Config)
	quiet.WarningHandler = rest.NoWarnings{} // listing old versions of kinds causes warnings
	client, err := discovery.NewDiscoveryClientForConfig(quiet)
	if err != nil {
		return nil, err
	}
	served, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(quiet)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, group := range served {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(derived, r.Kind) || isJob(r.Kind) {
				continue
			}
			list, err := objects.Resource(version.WithResource(r.Name)).List(s.Context(), metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", r.Name, err)
			}
			for _, o := range list.Items {
				if o.Namespace != s.Namespace && o.Name != s.Namespace {
					all[r.Kind+" "+o.Name] = true
				}
			}
		}
	}
	return all, nil
}

func isJob(kind string) bool {
	return slices.ContainsFunc(kinds.All, func(k kinds.Kind) bool { return k.Name == kind })
}

var documentedObject = regexp.MustCompile("(?m)^\\| `(\\w+ [^`]+)` \\|")

// documentedRemains returns the objects that remain after an uninstallation according to docs/operations.md. Names may
// be patterns.
func documentedRemains(s *namespace.Test) []string {
	s.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	s.Must(err)
	_, text, _ := strings.Cut(string(page), "\n### What remains\n")
	text, _, ok := strings.Cut(text, "\n#")
	if !ok {
		s.Fatal("docs/operations.md has no section on what remains")
	}
	var patterns []string
	for _, found := range documentedObject.FindAllStringSubmatch(text, -1) {
		patterns = append(patterns, found[1])
	}
	return patterns
}

// checkRemains waits until exactly the objects that match the patterns exist in addition to those in before, and each
// pattern matches an object.
func checkRemains(s *namespace.Test, before map[string]bool, patterns []string) {
	s.Helper()
	s.Await("nothing is there but what the documentation lists", func() error {
		now, err := listing(s)
		if err != nil {
			return err
		}
		used := map[string]bool{}
		var undocumented []string
		for _, o := range slices.Sorted(maps.Keys(now)) {
			// Invalid patterns match nothing.
			i := slices.IndexFunc(patterns, func(p string) bool { ok, _ := path.Match(p, o); return ok })
			switch {
			case i >= 0:
				used[patterns[i]] = true
			case !before[o]:
				undocumented = append(undocumented, o)
			}
		}
		for o := range before {
			if !now[o] {
				undocumented = append(undocumented, o+" has gone")
			}
		}
		unused := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return used[p] })
		if len(undocumented)+len(unused) > 0 {
			return fmt.Errorf("not documented: %q; documented and not there: %q", undocumented, unused)
		}
		return nil
	})
}
