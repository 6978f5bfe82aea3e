// Package kit provides what the verbs of the command line share: the program's flags and streams, the connection to a
// cluster, finding jobs, output, terminals, completion and errors. It does not depend on any verb. Start reading at
// Program and Cluster.
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

// Program is one call of the command line program.
type Program struct {
	// IOStreams are the streams of the process. The output streams escape control sequences.
	genericiooptions.IOStreams
	// Name is the program's name in help texts: "t9k" or "kubectl t9k".
	Name string
	// Flags are the flags that select the cluster.
	Flags *genericclioptions.ConfigFlags
	// local is the name of the embedded cluster to use; empty to use the kubeconfig.
	local string
	// kubeconfig is the value of --kubeconfig. Connect saves it here before it replaces the flag's value.
	kubeconfig string
	// out is the standard output.
	out *stream
}

// New returns a program that was called by the given name. If the name begins with kubectl-, the program is a plug-in
// of kubectl.
func New(program string, streams genericiooptions.IOStreams) *Program {
	out := &stream{out: streams.Out}
	streams.Out, streams.ErrOut = safeWriter{out}, safeWriter{&stream{out: streams.ErrOut}}
	p := &Program{IOStreams: streams, Name: "t9k", Flags: genericclioptions.NewConfigFlags(true), out: out}
	if isPlugin(program) {
		p.Name = "kubectl t9k"
	}
	return p
}

// OutputError returns the first error of a write to the standard output, for example because the disk is full; nil if
// all output was written.
func (p *Program) OutputError() error {
	if err := p.out.firstError(); err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	return nil
}

// isPlugin reports whether kubectl calls a program with this name as a plug-in or for the completion of a plug-in.
func isPlugin(program string) bool {
	return strings.HasPrefix(program, "kubectl-") || strings.HasPrefix(program, "kubectl_complete-")
}

// AddFlags adds the flags that select the cluster. It hides kubectl flags that few users need.
func (p *Program) AddFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	p.Flags.AddFlags(flags)
	shown := map[string]bool{"kubeconfig": true, "context": true, "namespace": true}
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !shown[f.Name] })
	flags.StringVar(&p.local, "local", "", "Use the embedded cluster of this name instead of the kubeconfig (default name: default)")
	flags.Lookup("local").NoOptDefVal = DefaultLocal
	_ = root.RegisterFlagCompletionFunc("namespace", p.completeNamespaces)
	_ = root.RegisterFlagCompletionFunc("context", p.completeContexts)
}

// Named returns text with the program's name instead of "t9k" or "kubectl t9k" where a command line begins: at the
// start, after a double quote or after white space, and before a space. Names such as t9k-scheduler stay.
func (p *Program) Named(text string) string {
	return callsItself.ReplaceAllString(text, "${1}"+p.Name+" ")
}

var callsItself = regexp.MustCompile(`(^|["\s])(?:kubectl )?t9k `)

// Example returns the examples of a help text, indented and with the program's name.
func (p *Program) Example(lines ...string) string {
	for i, l := range lines {
		lines[i] = "  " + p.Named(l)
	}
	return strings.Join(lines, "\n")
}

// Again returns a command line that runs a verb in a namespace of the same cluster.
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
	for _, f := range []struct {
		name  string
		value *string
	}{{"--context", p.Flags.Context}, {"--cluster", p.Flags.ClusterName}, {"--server", p.Flags.APIServer}} {
		if *f.value != "" {
			parts = append(parts, f.name, *f.value)
		}
	}
	return strings.Join(parts, " ")
}

// AddFileFlag adds the flag -f, which names manifests.
func AddFileFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "filename", "f", nil, `Manifest in YAML or JSON, a directory of manifests, or an https address; "-" reads standard input. May be given several times`)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// Open opens a manifest and returns its name for messages. The name "-" means standard input, and a name with a scheme,
// such as https://, is an address.
func (p *Program) Open(name string) (io.ReadCloser, string, error) {
	switch {
	case name == "-":
		return io.NopCloser(p.In), "stdin", nil
	case isAddress(name):
		return download(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, "", fmt.Errorf("opening the manifest: %w", err)
	}
	return f, name, nil
}

// OfflineNamespace returns the namespace from the flags or the kubeconfig, or "default" if they have none. It sends no
// request.
func (p *Program) OfflineNamespace() string {
	namespace, _, err := p.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}
