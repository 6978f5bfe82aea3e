package kit

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/internal/kinds"
)

// Completion returns completions of an argument or a flag.
type Completion = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// Complete returns the completions that find returns, and none if there is no cluster or if find fails. The directive
// turns off the completion of file names. Complete prints nothing. The context of find expires after RequestTimeout.
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

// CompleteJobs returns a completion of job names for at most n arguments; -1 means any number. For a name that jobs of
// several kinds have, it offers KIND/NAME.
func (p *Program) CompleteJobs(n int) Completion {
	return p.CompleteJobsThat(n, func(*Job) bool { return true })
}

// CompleteJobsThat returns a completion like CompleteJobs, for the jobs for which fit returns true.
func (p *Program) CompleteJobsThat(n int, fit func(*Job) bool) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.Complete(cmd.Context(), func(ctx context.Context, c *Cluster) ([]string, error) {
			jobs, _, err := c.List(ctx, kinds.All, c.Namespace, "")
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

// CompleteRoles completes the roles in the status of the job that the first argument names.
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
