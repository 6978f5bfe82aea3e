// Package convert implements "t9k convert", which converts training jobs of Kubeflow to the jobs of this product.
package convert

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/convert"
	"tensorstack.dev/batch/internal/manifest"
)

// Command returns the command "t9k convert".
func Command(p *kit.Program) *cobra.Command {
	var files []string
	o := kit.YAML
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Convert training jobs of Kubeflow",
		Long: `Convert PyTorchJob and TFJob of kubeflow.org/v1 to PyTorchTrainingJob and TensorFlowTrainingJob, and print the result. The
command needs no cluster. It converts every field exactly, or prints on standard error how it converted the field, why, and
what you can do:

  FILE:LINE: PATH: MESSAGE

The command prints other objects unchanged. If it cannot convert a job, it prints no output and its exit code is 1.`,
		Example: p.Example("t9k convert -f pytorchjob.yaml > job.yaml", "kubectl get pytorchjob mnist -o yaml | t9k convert -f -"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, problems, err := convertAll(p, files)
			if err != nil {
				return err
			}
			// A converted job can still break a rule that applies to both kinds of job.
			checker := manifest.Checker{Namespace: p.OfflineNamespace()}
			for i := 0; i < len(objects) && len(problems) == 0; i++ {
				result, err := checker.Check(cmd.Context(), objects[i])
				if err != nil {
					return err
				}
				for _, f := range result.Errors {
					problems = append(problems, fmt.Sprintf("%s:%d: as %s: %s: %s", f.File, f.Line, manifest.NameOf(result.Object), f.Path, f.Message))
				}
			}
			if len(problems) > 0 {
				for _, f := range problems {
					fmt.Fprintln(p.ErrOut, f)
				}
				return &kit.ExitError{Code: kit.ExitFailed}
			}
			return p.PrintEach(o, func(yield func(*unstructured.Unstructured, error) bool) {
				for i := range objects {
					if !yield(objects[i].Object, nil) {
						return
					}
				}
			})
		},
	}
	kit.AddFileFlag(cmd, &files)
	kit.AddOutputFlag(cmd, &o, kit.YAML, kit.JSON)
	return cmd
}

// convertAll reads manifests and converts the Kubeflow jobs in them. It prints notes about fields whose conversion is
// not exact, and about the other objects, which it returns unchanged. problems describes the documents that cannot be
// read and the fields that cannot be converted. If it finds neither a job of Kubeflow nor a problem, it returns an
// error.
func convertAll(p *kit.Program, files []string) (all []manifest.Doc, problems []string, err error) {
	if len(files) == 0 {
		return nil, nil, manifest.ErrNoFile
	}
	if files, err = manifest.Expand(files); err != nil {
		return nil, nil, err
	}
	converted := 0
	for _, file := range files {
		_, docs, wrong, err := manifest.ReadFile(p.Open, file)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range wrong {
			problems = append(problems, f.String())
		}
		for _, d := range docs {
			if d.Object.GroupVersionKind().Group == convert.Group {
				converted++
				problems = append(problems, convertOne(p, &d)...)
			} else {
				fmt.Fprintf(p.ErrOut, "%s:%d: %s is printed unchanged\n", d.File, d.Line, manifest.NameOf(d.Object))
			}
			all = append(all, d)
		}
	}
	if converted == 0 && len(problems) == 0 {
		return nil, nil, fmt.Errorf("there is no job of %s to convert", convert.Group)
	}
	return all, problems, nil
}

// convertOne replaces the Kubeflow job in a document by its conversion, and prints the notes about the conversion. If
// the job cannot be converted, it leaves the document unchanged and returns the reasons.
func convertOne(p *kit.Program, d *manifest.Doc) (problems []string) {
	line := func(n convert.Note) string { return d.At(n.Path, n.Message).String() }
	job, notes, err := convert.Job(d.Object)
	var refused convert.Error
	if errors.As(err, &refused) {
		for _, n := range refused {
			problems = append(problems, line(n))
		}
		return problems
	}
	for _, n := range notes {
		fmt.Fprintln(p.ErrOut, line(n))
	}
	*d = d.WithObject(job)
	return nil
}
