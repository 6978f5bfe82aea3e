// Package kit is what the verbs of the command line share: the program as it was called, the connection to a cluster, finding
// jobs, output, terminals, completion and errors. It knows no verb. Start reading at Program and Cluster.
package kit

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Program is the command line program as it was called.
type Program struct {
	// IOStreams are those of the process, whose output passes no control sequence on.
	genericiooptions.IOStreams
	// Name is how the program is called in help texts: "t9k" or "kubectl t9k".
	Name string
	// Flags are those that say which cluster is meant.
	Flags *genericclioptions.ConfigFlags
	// local names the embedded cluster to use; empty to follow the kubeconfig.
	local string
	// kubeconfig is the file that was named on the command line.
	kubeconfig string
}

// New returns the program of a name. Called as kubectl-t9k it is a plug-in of kubectl.
func New(program string, streams genericiooptions.IOStreams) *Program {
	streams.Out, streams.ErrOut = safeWriter{streams.Out}, safeWriter{streams.ErrOut}
	p := &Program{IOStreams: streams, Name: "t9k", Flags: genericclioptions.NewConfigFlags(true)}
	if isPlugin(program) {
		p.Name = "kubectl t9k"
	}
	return p
}

// isPlugin tells whether kubectl calls a program of this name as its plug-in, or to complete that one's command line.
func isPlugin(program string) bool {
	return strings.HasPrefix(program, "kubectl-") || strings.HasPrefix(program, "kubectl_complete-")
}

// AddFlags adds the flags that say which cluster is meant. Those of kubectl that few people set are there but not listed.
func (p *Program) AddFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	p.Flags.AddFlags(flags)
	shown := map[string]bool{"kubeconfig": true, "context": true, "namespace": true}
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !shown[f.Name] })
	flags.StringVar(&p.local, "local", "", "Use the embedded cluster of this name, whatever the kubeconfig says (default name: default)")
	flags.Lookup("local").NoOptDefVal = DefaultLocal
	_ = root.RegisterFlagCompletionFunc("namespace", p.completeNamespaces)
	_ = root.RegisterFlagCompletionFunc("context", p.completeContexts)
}

// Named calls the program by its name in a text that says "t9k VERB".
func (p *Program) Named(text string) string {
	return callsItself.ReplaceAllString(text, "${1}"+p.Name+" ")
}

var callsItself = regexp.MustCompile(`(^|["\s])t9k `)

// Example indents the examples of a help text and calls the program by its name.
func (p *Program) Example(lines ...string) string {
	for i, l := range lines {
		lines[i] = "  " + p.Named(l)
	}
	return strings.Join(lines, "\n")
}

// Again is a command line that reaches the same cluster as this one did, and a namespace of it.
func (p *Program) Again(c *Cluster, namespace, verb string) string {
	parts := []string{p.Name, verb}
	if c.Chosen || namespace != c.Namespace {
		parts = append(parts, "-n", namespace)
	}
	switch {
	case p.local != "":
		parts = append(parts, "--local="+p.local)
	case p.kubeconfig != "":
		parts = append(parts, "--kubeconfig", p.kubeconfig)
	}
	if context := *p.Flags.Context; context != "" {
		parts = append(parts, "--context", context)
	}
	return strings.Join(parts, " ")
}

// AddFileFlag adds -f, which names manifests.
func AddFileFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "filename", "f", nil, `Manifest, YAML or JSON; "-" reads standard input. May be given several times`)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// Open opens a manifest, "-" being standard input, and gives it a name for messages.
func (p *Program) Open(name string) (io.ReadCloser, string, error) {
	if name == "-" {
		return io.NopCloser(p.In), "stdin", nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, "", fmt.Errorf("opening the manifest: %w", err)
	}
	return f, name, nil
}

// OfflineNamespace is the namespace that a cluster would be asked for, as far as can be told without one.
func (p *Program) OfflineNamespace() string {
	namespace, _, err := p.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}
