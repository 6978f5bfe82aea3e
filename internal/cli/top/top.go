// Package top implements "t9k top", which shows the resource requests of pods by node, queue and user.
package top

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
)

// sections are the names of the tables, in order.
var sections = []string{"nodes", "queues", "users"}

// Command returns the command "t9k top".
func Command(p *kit.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "top [nodes|queues|users]",
		Short: "Show requests of GPUs, CPUs and memory by node, queue and user",
		Long: `Show how much of every extended resource, such as nvidia.com/gpu, of CPU and of memory the pods on nodes request, and how
much there is: the allocatable resources of nodes, and the quotas of queues.

A pod of another scheduler belongs to no queue. The user of a pod without a queue is not recorded. If you may not list the
pods of all namespaces, the command counts the pods of your namespace.`,
		Example:   p.Example("t9k top", "t9k top queues"),
		ValidArgs: sections,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains(sections, args[0]) {
				return fmt.Errorf("name one of %s, or nothing", strings.Join(sections, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = sections
			}
			return top(cmd.Context(), p, args)
		},
	}
}

func top(ctx context.Context, p *kit.Program, which []string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	r := reader{Cluster: c, namespace: metav1.NamespaceAll}
	pods, err := r.pods(ctx)
	if apierrors.IsForbidden(err) {
		r.namespace = c.Namespace
		fmt.Fprintf(p.ErrOut, "Only pods of namespace %q are counted: you may not list those of all namespaces.\n", c.Namespace)
		pods, err = r.pods(ctx)
	}
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	nodes, err := optional(p, func() (*corev1.NodeList, error) { return c.Core.Nodes().List(ctx, metav1.ListOptions{}) })
	if err != nil {
		return err
	}
	var queues scheduling.QueueList
	if err := r.list(ctx, p, "queues", "", &queues); err != nil {
		return err
	}
	var groups scheduling.PodGroupList
	if err := r.list(ctx, p, "podgroups", r.namespace, &groups); err != nil {
		return err
	}
	all := count(nodes.Items, queues.Items, groups.Items, pods)
	tables := map[string]view.Table{
		"nodes":  all.nodes.table("NODE", all.columns()),
		"queues": all.queues.table("QUEUE", all.columns()),
		"users":  all.users.table("USER", all.columns()),
	}
	for i, name := range which {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		if err := p.PrintTable(tables[name]); err != nil {
			return err
		}
	}
	return nil
}

// reader lists the objects that top counts.
type reader struct {
	*kit.Cluster
	// namespace is the namespace whose pods and groups are counted; empty for all.
	namespace string
}

func (r *reader) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := r.Core.Pods(r.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// list reads a list of objects of the t9k-scheduler. The list stays empty if their kind is not installed or if the user
// may not list them.
func (r *reader) list(ctx context.Context, p *kit.Program, resource, namespace string, into runtime.Object) error {
	raw, err := optional(p, func() (*listed, error) {
		u, err := r.Objects.Resource(scheduling.GroupVersion.WithResource(resource)).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return &listed{u.UnstructuredContent()}, nil
	})
	if err != nil || raw.content == nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.content, into); err != nil {
		return fmt.Errorf("reading %s: %w", resource, err)
	}
	return nil
}

// listed holds the content of a list; nil if the list was not read.
type listed struct{ content map[string]any }

// optional returns the answer of a request, or an empty answer if the user may not make the request or if the resource
// is not installed. If the user may not make the request, it prints the error.
func optional[T any](p *kit.Program, request func() (*T, error)) (*T, error) {
	answer, err := request()
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintf(p.ErrOut, "Not shown: %v\n", err)
	case err != nil && !kit.NotServed(err):
		return nil, err
	}
	if answer == nil {
		answer = new(T)
	}
	return answer, nil
}
