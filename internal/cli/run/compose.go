package run

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/manifest"
	"tensorstack.dev/batch/internal/nearest"
)

// composed is the name of the manifest that flags describe, for messages.
const composed = "the flags"

// composer builds the manifest of a job from flags.
type composer struct {
	name, image, kind, queue string
	gpus, cpu, memory        string
	replicas                 int32
	env                      []string
	// command is the command line after the double dash.
	command []string
	// set holds the composer's flags that the command line sets, such as --image.
	set []string
}

// composeFlags are the names of the composer's flags.
var composeFlags = []string{"name", "image", "kind", "queue", "gpus", "cpu", "memory", "replicas", "env"}

// defaultGPU is the resource that --gpus means unless the flag names another one.
const defaultGPU = "nvidia.com/gpu"

func (c *composer) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.name, "name", "", "Without a manifest: name of the job")
	f.StringVar(&c.image, "image", "", "Without a manifest: image of its containers")
	f.StringVar(&c.kind, "kind", "generic", "Without a manifest: kind of the job, one of "+strings.Join(composedKindNames(), ", "))
	f.Int32Var(&c.replicas, "replicas", 1, "Without a manifest: number of replicas")
	f.StringVar(&c.gpus, "gpus", "", "Without a manifest: GPUs of each replica, such as 2, or amd.com/gpu=2 for a resource other than "+defaultGPU)
	f.StringVar(&c.cpu, "cpu", "", "Without a manifest: CPUs that each replica requests, such as 4 or 500m")
	f.StringVar(&c.memory, "memory", "", "Without a manifest: memory that each replica requests, such as 16Gi")
	f.StringVar(&c.queue, "queue", "", "Without a manifest: queue of the t9k-scheduler")
	f.StringArrayVar(&c.env, "env", nil, "Without a manifest: environment variable, NAME=VALUE. May be given several times")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(composedKindNames(), cobra.ShellCompDirectiveNoFileComp))
}

// take reads the job's description from the command line, and returns the names of manifests in the arguments.
func (c *composer) take(cmd *cobra.Command, args []string) (files []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		args, c.command = args[:at], args[at:]
	}
	for _, name := range composeFlags {
		if cmd.Flags().Changed(name) {
			c.set = append(c.set, "--"+name)
		}
	}
	return args
}

// used reports whether the command line describes a job without a manifest.
func (c *composer) used() bool { return len(c.set) > 0 || len(c.command) > 0 }

// composedKinds returns the kinds of job that flags can describe, by the value of --kind, such as pytorch for
// PyTorchTrainingJob.
func composedKinds() map[string]*kinds.Kind {
	all := map[string]*kinds.Kind{}
	for i := range kinds.All {
		k := &kinds.All[i]
		all[strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(k.Name), "job"), "training")] = k
	}
	return all
}

func composedKindNames() []string { return slices.Sorted(maps.Keys(composedKinds())) }

// mainContainer returns the name of the main container of a kind of job: the name of the framework in training jobs,
// and "main" in other jobs. flag is the value of --kind.
func mainContainer(flag string, kind *kinds.Kind) string {
	if strings.EqualFold(kind.Name, flag+"TrainingJob") {
		return flag
	}
	return "main"
}

// These types contain the fields of a manifest in their usual order.
type (
	jobText struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   metaText `yaml:"metadata"`
		Spec       specText `yaml:"spec"`
	}
	metaText struct {
		Name string `yaml:"name"`
	}
	specText struct {
		Scheduler    *schedulerText `yaml:"scheduler,omitempty"`
		ReplicaSpecs []roleText     `yaml:"replicaSpecs"`
	}
	schedulerText struct {
		T9kScheduler queueText `yaml:"t9kScheduler"`
	}
	queueText struct {
		Queue string `yaml:"queue"`
	}
	roleText struct {
		Type     string       `yaml:"type"`
		Replicas int32        `yaml:"replicas"`
		Template templateText `yaml:"template"`
	}
	templateText struct {
		Spec podText `yaml:"spec"`
	}
	podText struct {
		Containers []containerText `yaml:"containers"`
	}
	containerText struct {
		Name      string         `yaml:"name"`
		Image     string         `yaml:"image"`
		Command   []string       `yaml:"command,flow,omitempty"`
		Env       []envText      `yaml:"env,omitempty"`
		Resources *resourcesText `yaml:"resources,omitempty"`
	}
	envText struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	}
	resourcesText struct {
		Requests map[string]string `yaml:"requests,omitempty"`
		Limits   map[string]string `yaml:"limits,omitempty"`
	}
)

// check returns an error if files are combined with flags or a command, if a required flag is missing, or if --replicas
// is less than 1.
func (c *composer) check(files []string) error {
	var missing []string
	for flag, value := range map[string]string{"--name": c.name, "--image": c.image} {
		if value == "" {
			missing = append(missing, flag)
		}
	}
	slices.Sort(missing)
	switch {
	case len(files) > 0 && len(c.set) > 0:
		return fmt.Errorf("a job comes from a manifest or from flags: leave out %s or %s", files[0], strings.Join(c.set, ", "))
	case len(files) > 0:
		return fmt.Errorf("the command after -- is for a job without a manifest: leave out %s or the command", files[0])
	case len(missing) > 0:
		return fmt.Errorf("a job without a manifest needs a name and an image: add %s", strings.Join(missing, " and "))
	case c.replicas < 1:
		return fmt.Errorf("--replicas %d: write a number from 1", c.replicas)
	}
	return nil
}

// manifest returns the manifest of the job as YAML, or an error that names the flag with a wrong value.
func (c *composer) manifest() ([]byte, error) {
	kind := composedKinds()[c.kind]
	if kind == nil {
		hint := "use one of " + strings.Join(composedKindNames(), ", ")
		if near := nearest.Names(c.kind, composedKindNames(), 1); len(near) > 0 {
			hint = fmt.Sprintf("did you mean %s?", near[0])
		}
		return nil, fmt.Errorf("--kind %s: no such kind; %s", c.kind, hint)
	}
	main := containerText{Name: mainContainer(c.kind, kind), Image: c.image, Command: c.command}
	var err error
	if main.Env, err = c.variables(); err != nil {
		return nil, err
	}
	if main.Resources, err = c.resources(); err != nil {
		return nil, err
	}
	job := jobText{APIVersion: batch.GroupVersion.String(), Kind: kind.Name, Metadata: metaText{c.name}, Spec: specText{
		ReplicaSpecs: []roleText{{Type: "worker", Replicas: c.replicas, Template: templateText{podText{[]containerText{main}}}}},
	}}
	if c.queue != "" {
		job.Spec.Scheduler = &schedulerText{queueText{c.queue}}
	}
	var b bytes.Buffer
	encoder := yamlnode.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(job); err != nil {
		return nil, fmt.Errorf("writing the manifest: %w", err)
	}
	return b.Bytes(), nil
}

func (c *composer) variables() ([]envText, error) {
	var all []envText
	for _, e := range c.env {
		name, value, ok := strings.Cut(e, "=")
		switch {
		case !ok:
			return nil, fmt.Errorf("--env %s: write NAME=VALUE", e)
		case len(validation.IsEnvVarName(name)) > 0:
			return nil, fmt.Errorf("--env %s: %q is not a name of a variable", e, name)
		case slices.ContainsFunc(all, func(o envText) bool { return o.Name == name }):
			return nil, fmt.Errorf("--env %s: %s has a value already", e, name)
		}
		all = append(all, envText{name, value})
	}
	return all, nil
}

var wholeNumber = regexp.MustCompile(`^[0-9]+$`)

// resources returns the requests and limits of each replica; nil if there are none.
func (c *composer) resources() (*resourcesText, error) {
	r := &resourcesText{Requests: map[string]string{}, Limits: map[string]string{}}
	for _, q := range []struct{ flag, value, resource string }{{"cpu", c.cpu, "cpu"}, {"memory", c.memory, "memory"}} {
		if q.value == "" {
			continue
		}
		amount, err := resource.ParseQuantity(q.value)
		if err != nil || amount.Sign() <= 0 {
			example := map[string]string{"cpu": "4 or 500m", "memory": "16Gi"}[q.flag]
			return nil, fmt.Errorf("--%s %s: write an amount such as %s", q.flag, q.value, example)
		}
		r.Requests[q.resource] = q.value
	}
	if c.gpus != "" {
		of, count, named := strings.Cut(c.gpus, "=")
		if !named {
			of, count = defaultGPU, c.gpus
		}
		switch {
		case !wholeNumber.MatchString(count):
			return nil, fmt.Errorf("--gpus %s: write a whole number such as 2, or RESOURCE=2", c.gpus)
		case !strings.Contains(of, "/") || len(validation.IsQualifiedName(of)) > 0:
			return nil, fmt.Errorf("--gpus %s: %q is not the name of a resource such as %s", c.gpus, of, defaultGPU)
		case strings.Trim(count, "0") != "":
			r.Limits[of] = count
		}
	}
	if len(r.Requests)+len(r.Limits) == 0 {
		return nil, nil
	}
	return r, nil
}

// opener returns a function that opens the composed manifest.
func (c *composer) opener() (manifest.Opener, error) {
	text, err := c.manifest()
	if err != nil {
		return nil, err
	}
	return func(string) (io.ReadCloser, string, error) {
		return io.NopCloser(bytes.NewReader(text)), composed, nil
	}, nil
}

// print writes the manifest as YAML with its fields in the usual order, or the checked job as JSON.
func (c *composer) print(p *kit.Program, o kit.Format, checked *manifest.Checked) error {
	if cmp.Or(o, kit.YAML) != kit.YAML {
		return kit.PrintObject(p.Out, o, checked.Results[0].Object)
	}
	text, err := c.manifest()
	if err != nil {
		return err
	}
	if _, err := p.Out.Write(text); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

var errDryRun = errors.New("--dry-run prints the manifest of a job that flags describe; \"validate\" checks a manifest and \"render\" prints its objects")
