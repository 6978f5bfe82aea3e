package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/manifest"
	"tensorstack.dev/batch/internal/convert"
)

func (a *app) convertCommand() *cobra.Command {
	var files []string
	o := outputYAML
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Turn training jobs of Kubeflow into those of this product",
		Long: `Read PyTorchJob and TFJob of kubeflow.org/v1 and print, without any cluster, the PyTorchTrainingJob or TensorFlowTrainingJob
that does the same. Every field is carried over or named on standard error, with what became of it, why, and what to do:

  FILE:LINE: PATH: MESSAGE

Other objects are printed as they are. If any job cannot be converted, nothing is printed and the exit code is 1.`,
		Example: a.example("t9k convert -f pytorchjob.yaml > job.yaml", "kubectl get pytorchjob mnist -o yaml | t9k convert -f -"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, faults, err := a.convert(files)
			if err != nil {
				return err
			}
			// What has no fault so far may still break a rule that both kinds of job have.
			checker := manifest.Checker{Namespace: a.offlineNamespace()}
			for i := 0; i < len(objects) && len(faults) == 0; i++ {
				result, err := checker.Check(cmd.Context(), objects[i])
				if err != nil {
					return err
				}
				for _, f := range result.Faults {
					faults = append(faults, fmt.Sprintf("%s:%d: as %s: %s: %s", f.File, f.Line, nameOf(result.Object), f.Path, f.Message))
				}
			}
			if len(faults) > 0 {
				for _, f := range faults {
					fmt.Fprintln(a.ErrOut, f)
				}
				return &exitError{code: exitFailed}
			}
			return a.printRendered(o, func(yield func(*unstructured.Unstructured, error) bool) {
				for i := range objects {
					if !yield(objects[i].Object, nil) {
						return
					}
				}
			})
		},
	}
	addFileFlag(cmd, &files)
	addOutputFlag(cmd, &o, outputYAML, outputJSON)
	return cmd
}

// convert reads manifests and converts the jobs of Kubeflow in them. It tells what is not carried over; the faults are what
// cannot be converted.
func (a *app) convert(files []string) (all []manifest.Doc, faults []string, err error) {
	if len(files) == 0 {
		return nil, nil, errors.New("name a manifest: -f FILE")
	}
	converted := 0
	for _, file := range files {
		r, name, err := a.open(file)
		if err != nil {
			return nil, nil, err
		}
		docs, wrong, err := manifest.Read(name, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, nil, err
		}
		for _, f := range wrong {
			faults = append(faults, f.String())
		}
		for _, d := range docs {
			if d.Object.GroupVersionKind().Group == convert.Group {
				converted++
				faults = append(faults, a.convertOne(&d)...)
			} else {
				fmt.Fprintf(a.ErrOut, "%s:%d: %s is printed as it is\n", d.File, d.Line, nameOf(d.Object))
			}
			all = append(all, d)
		}
	}
	if converted == 0 && len(faults) == 0 {
		return nil, nil, fmt.Errorf("there is no job of %s to convert", convert.Group)
	}
	return all, faults, nil
}

// convertOne replaces a job of Kubeflow by what it becomes.
func (a *app) convertOne(d *manifest.Doc) (faults []string) {
	line := func(n convert.Note) string { return d.Fault(n.Path, n.Message).String() }
	job, notes, err := convert.Job(d.Object)
	var refused convert.Error
	if errors.As(err, &refused) {
		for _, n := range refused {
			faults = append(faults, line(n))
		}
		return faults
	}
	for _, n := range notes {
		fmt.Fprintln(a.ErrOut, line(n))
	}
	*d = d.Become(job)
	return nil
}
