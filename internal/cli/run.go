package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"tensorstack.dev/batch/internal/cli/manifest"
	"tensorstack.dev/batch/internal/cli/view"
)

type runOptions struct {
	files  []string
	detach bool
	// failIfImpossible ends the following of a job that can never start.
	failIfImpossible bool
	output           output
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run -f FILE",
		Short: "Apply a manifest and follow its jobs to their end",
		Long: `Check a manifest, apply it and follow its jobs to their end. The exit code tells their result: 0 if all have succeeded.

Other objects in the manifest, such as ConfigMaps, are applied first. All is applied on the server's side with field
manager "t9k", so running a changed manifest again changes what may change on a live job. What "validate" objects to is
refused before anything is created. A job with generateName is created anew each time.

On a terminal the job is shown in one picture that is drawn anew at every change; elsewhere each transition is a line.
Ctrl-C stops following; the job goes on. Outages of the API server are waited out. A job that needs more than its queue's quota
or all nodes have is warned of; --fail-if-impossible ends there.`,
		Example: a.example("t9k run -f job.yaml", "t9k run -f job.yaml --detach", "cat job.yaml | t9k run -f -"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "" && !o.detach {
				return errors.New("-o prints what was applied and goes with --detach")
			}
			if o.failIfImpossible && o.detach {
				return errors.New("--fail-if-impossible needs the job to be followed: leave --detach out")
			}
			return a.run(cmd.Context(), &o)
		},
	}
	addFileFlag(cmd, &o.files)
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "Return when everything is applied")
	cmd.Flags().BoolVar(&o.failIfImpossible, "fail-if-impossible", false, "End, with exit code 1, once the scheduler says that a job can never start as things are; the job stays")
	addOutputFlag(cmd, &o.output, outputName, outputJSON, outputYAML)
	return cmd
}

func addFileFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "filename", "f", nil, `Manifest, YAML or JSON; "-" reads standard input. May be given several times`)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

func (a *app) run(ctx context.Context, o *runOptions) error {
	// A manifest's faults are worth telling even where there is no cluster.
	c, noCluster := a.connect()
	checked, err := a.check(ctx, o.files, a.offlineNamespace(), asInstalled)
	if err != nil {
		return err
	}
	if len(checked.faults) > 0 {
		for _, f := range checked.faults {
			fmt.Fprintln(a.ErrOut, f)
		}
		return errors.New("the manifest is not valid; nothing was applied")
	}
	if noCluster != nil {
		return noCluster
	}
	ap := applier{app: a, cluster: c, quiet: o.output != ""}
	if err := ap.locate(checked.results); err != nil {
		return err
	}
	jobs, err := ap.apply(ctx)
	if err != nil {
		return err
	}
	switch {
	case o.output == outputName:
		for _, j := range jobs {
			fmt.Fprintln(a.Out, j.ref())
		}
		return nil
	case o.output != "":
		if len(jobs) == 1 {
			return printObject(a.Out, o.output, jobs[0].raw)
		}
		return printObject(a.Out, o.output, listOf(jobs))
	case o.detach:
		return nil
	case len(jobs) == 0:
		fmt.Fprintln(a.ErrOut, "There is no job in the manifest to follow.")
		return nil
	}
	a.tellRuntime(ctx, c)
	a.tellFinished(c, jobs)
	return a.followWhilePossible(ctx, c, jobs, o.failIfImpossible)
}

// target is an object and where it goes.
type target struct {
	manifest.Result
	client dynamic.ResourceInterface
}

// applier applies the objects of a manifest.
type applier struct {
	*app
	cluster *cluster
	quiet   bool
	// others come before jobs, which may need them.
	others, jobs []target
}

// locate finds the client of each object.
func (p *applier) locate(results []manifest.Result) error {
	var mapper meta.RESTMapper
	for _, r := range results {
		if r.Kind != nil {
			if err := p.place(r.Object, true); err != nil {
				return err
			}
			p.jobs = append(p.jobs, target{r, p.cluster.jobs(r.Kind, r.Object.GetNamespace())})
			continue
		}
		if mapper == nil {
			discovery, err := p.flags.ToDiscoveryClient()
			if err != nil {
				return fmt.Errorf("making a client: %w", err)
			}
			mapper = restmapper.NewDeferredDiscoveryRESTMapper(discovery)
		}
		gvk := r.Object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", r.File, r.Line, err)
		}
		namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
		if err := p.place(r.Object, namespaced); err != nil {
			return err
		}
		var client dynamic.ResourceInterface = p.cluster.objects.Resource(mapping.Resource)
		if namespaced {
			client = p.cluster.objects.Resource(mapping.Resource).Namespace(r.Object.GetNamespace())
		}
		p.others = append(p.others, target{r, client})
	}
	return nil
}

// place gives an object its namespace.
func (p *applier) place(u *unstructured.Unstructured, namespaced bool) error {
	switch {
	case !namespaced:
	case u.GetNamespace() == "":
		u.SetNamespace(p.cluster.namespace)
	case p.cluster.chosen && u.GetNamespace() != p.cluster.namespace:
		return fmt.Errorf("the manifest puts %s into namespace %q, and -n says %q", nameOf(u), u.GetNamespace(), p.cluster.namespace)
	}
	return nil
}

// apply applies everything, jobs last. What the API server refuses of the jobs is found out before anything is changed.
func (p *applier) apply(ctx context.Context) ([]*job, error) {
	for _, t := range p.jobs {
		_, err := p.put(ctx, t, true)
		if notServed(err) {
			return nil, errNotInstalled
		}
		// A namespace that the same manifest creates may be missing still.
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("applying %s: %w", nameOf(t.Object), err)
		}
	}
	for _, t := range p.others {
		if _, err := p.applyOne(ctx, t); err != nil {
			return nil, err
		}
	}
	var jobs []*job
	for _, t := range p.jobs {
		raw, err := p.applyOne(ctx, t)
		if err != nil {
			return nil, err
		}
		j, err := newJob(t.Kind, raw)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (p *applier) applyOne(ctx context.Context, t target) (*unstructured.Unstructured, error) {
	word := "created"
	before := ""
	if name := t.Object.GetName(); name != "" {
		old, err := t.client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			before, word = old.GetResourceVersion(), "configured"
		case apierrors.IsForbidden(err): // whoever may not get objects may still apply them
			word = "applied"
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("getting %s: %w", nameOf(t.Object), err)
		}
	}
	raw, err := p.put(ctx, t, false)
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", nameOf(t.Object), err)
	}
	if raw.GetResourceVersion() == before {
		word = "unchanged"
	}
	if !p.quiet {
		fmt.Fprintf(p.Out, "%s %s\n", nameOf(raw), word)
	}
	return raw, nil
}

// put applies an object on the server's side, or creates it where the server is to make up its name.
func (p *applier) put(ctx context.Context, t target, dry bool) (*unstructured.Unstructured, error) {
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	if t.Object.GetName() == "" {
		return t.client.Create(ctx, t.Object, metav1.CreateOptions{
			FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
		})
	}
	data, err := t.Object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	// The manifest is the user's word, so it wins over what was changed since by other means.
	force := true
	return t.client.Patch(ctx, t.Object.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict, Force: &force, DryRun: dryRun,
	})
}

// nameOf addresses an object of any kind.
func nameOf(u *unstructured.Unstructured) string {
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName()
	}
	return strings.ToLower(u.GetKind()) + "/" + name
}

// tellFinished says why a job that has ended does not run again.
func (a *app) tellFinished(c *cluster, jobs []*job) {
	for _, j := range jobs {
		if finished, _ := view.Finished(j.status()); finished {
			fmt.Fprintf(a.ErrOut, "%s has ended before and never runs again. To run it anew, delete it first: %s\n",
				j.ref(), a.again(c, j.GetNamespace(), "delete "+j.ref()))
		}
	}
}

// tellRuntime says that images are ignored where the cluster runs containers as plain processes.
func (a *app) tellRuntime(ctx context.Context, c *cluster) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nodes, err := c.core.Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(nodes.Items) == 0 || !strings.HasPrefix(nodes.Items[0].Status.NodeInfo.ContainerRuntimeVersion, "process://") {
		return
	}
	fmt.Fprintln(a.ErrOut, styleOf(a.ErrOut).Paint(view.Dim, "This cluster runs containers as processes of this machine: their images are ignored."))
}
