package kit

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/internal/kinds"
)

// Completion completes an argument or a flag.
type Completion = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// Complete returns what find finds in the cluster; nothing where there is none. It neither hangs nor prints anything else.
func (p *Program) Complete(ctx context.Context, find func(context.Context, *Cluster) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	quiet := *p
	quiet.ErrOut = io.Discard
	c, err := quiet.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	names, err := find(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteJobs completes the names of jobs, for at most n arguments; -1 stands for any number. A name that jobs of
// several kinds have is completed with its kind.
func (p *Program) CompleteJobs(n int) Completion {
	return p.CompleteJobsThat(n, func(*Job) bool { return true })
}

// CompleteJobsThat completes the names of those jobs only that a verb can do something with.
func (p *Program) CompleteJobsThat(n int, fit func(*Job) bool) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.Complete(cmd.Context(), func(ctx context.Context, c *Cluster) ([]string, error) {
			jobs, _, err := c.List(ctx, kinds.All, c.Namespace)
			times := map[string]int{}
			for _, j := range jobs {
				times[j.GetName()]++
			}
			var names []string
			for _, j := range jobs {
				if !fit(j) {
					continue
				}
				name := j.GetName()
				if times[name] > 1 {
					name = j.Ref()
				}
				names = append(names, cobra.CompletionWithDesc(name, string(j.Status().Phase)))
			}
			return names, err
		})
	}
}

// CompleteRoles completes the roles of the job that is the first argument.
func (p *Program) CompleteRoles(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.Complete(cmd.Context(), func(ctx context.Context, c *Cluster) ([]string, error) {
		j, err := c.Find(ctx, args[0])
		if err != nil {
			return nil, err
		}
		var roles []string
		for _, task := range j.Status().Tasks {
			roles = append(roles, task.Type)
		}
		return roles, nil
	})
}

func (p *Program) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.Complete(cmd.Context(), func(ctx context.Context, c *Cluster) ([]string, error) {
		list, err := c.Core.Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, nil
	})
}

func (p *Program) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := p.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
