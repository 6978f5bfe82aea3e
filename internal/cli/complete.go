package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/kinds"
)

type completion = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// completeJobs completes the names of jobs, for at most n arguments; -1 stands for any number. A name that jobs of
// several kinds have is completed with its kind.
func (a *app) completeJobs(n int) completion {
	return a.completeJobsThat(n, func(*job) bool { return true })
}

// completeJobsThat completes the names of those jobs only that a verb can do something with.
func (a *app) completeJobsThat(n int, fit func(*job) bool) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, ctx, cancel := a.connectQuietly(cmd.Context())
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer cancel()
		jobs, _, err := c.list(ctx, kinds.All, c.namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
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
				name = j.ref()
			}
			names = append(names, cobra.CompletionWithDesc(name, string(j.status().Phase)))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTensorBoards completes the name of a TensorBoard, which for that of a job is the job's.
func (a *app) completeTensorBoards(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, ctx, cancel := a.connectQuietly(cmd.Context())
	if c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, err := c.tensorBoards().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		phase, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "phase")
		names = append(names, cobra.CompletionWithDesc(list.Items[i].GetName(), phase))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeRoles completes the roles of the job that is the first argument.
func (a *app) completeRoles(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel := a.connectQuietly(cmd.Context())
	if c == nil || len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	j, err := c.find(ctx, args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var roles []string
	for _, task := range j.status().Tasks {
		roles = append(roles, task.Type)
	}
	return roles, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel := a.connectQuietly(cmd.Context())
	if c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, err := c.core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := a.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// connectQuietly connects for a completion, which must neither hang nor print anything else. The cluster is nil where
// there is none.
func (a *app) connectQuietly(ctx context.Context) (*cluster, context.Context, context.CancelFunc) {
	quiet := *a
	quiet.ErrOut = io.Discard
	c, err := quiet.connect()
	if err != nil {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	return c, ctx, cancel
}
