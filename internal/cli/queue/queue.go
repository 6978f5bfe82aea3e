// Package queue implements "t9k queue", which shows the queues of the t9k-scheduler and the groups of pods that wait in
// them.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/cli/waiting"
)

// Command returns the command "t9k queue".
func Command(p *kit.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Show the queues of the t9k-scheduler and the groups that wait in them",
		Long: `Show the queues of the t9k-scheduler: the quota and the usage of each queue, and the groups of pods that wait in it, with
the reasons.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listCommand(p), describeCommand(p))
	return cmd
}

func listCommand(p *kit.Program) *cobra.Command {
	var o kit.Format
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List the queues by priority",
		Example: p.Example("t9k queue list"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.Connect()
			if err != nil {
				return err
			}
			queues, raw, err := listQueues(cmd.Context(), c)
			if err != nil {
				return err
			}
			if o != "" {
				return kit.PrintObject(p.Out, o, raw)
			}
			if len(queues) == 0 {
				fmt.Fprintln(p.ErrOut, "No queues.")
				return nil
			}
			return p.PrintTable(table(queues, time.Now()))
		},
	}
	kit.AddOutputFlag(cmd, &o, kit.JSON, kit.YAML)
	return cmd
}

func describeCommand(p *kit.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "describe QUEUE...",
		Short:   "Show queues with their limits and usage, their waiting groups with reasons, and their running groups",
		Example: p.Example("t9k queue describe default"),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a queue, such as default; \"queue list\" lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.Connect()
			if err != nil {
				return err
			}
			for i, name := range args {
				if i > 0 {
					fmt.Fprint(p.Out, "\n\n")
				}
				if err := describeQueue(cmd.Context(), p, c, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// describeQueue prints a queue, its waiting groups in order, and its running groups.
func describeQueue(ctx context.Context, p *kit.Program, c *kit.Cluster, name string) error {
	q, err := getQueue(ctx, c, name)
	if err != nil {
		return err
	}
	groups, err := waiting.List(ctx, c, name)
	style, width := kit.StyleOf(p.Out), kit.TerminalOf(p.Out).Width()
	lines := describe(q, style, width)
	switch {
	case apierrors.IsForbidden(err): // a user who may read queues may not be allowed to list groups
		lines = append(lines, view.Wrap("not shown: "+err.Error(), "  ", width)...)
	case err != nil:
		return err
	default:
		lines = append(lines, waiting.Table(groups.Waiting, time.Now(), style, width)...)
		lines = append(lines, "", style.Paint(view.Bold, "Running"))
		lines = append(lines, runningGroups(groups.Running, time.Now()).Lines(style, "  ", width)...)
		if groups.Within != "" {
			lines = append(lines, "", "  Only namespace "+groups.Within+" is shown: you may not list the groups and pods of all namespaces.")
		}
	}
	return kit.PrintLines(p.Out, lines)
}

var queueResource = scheduling.GroupVersion.WithResource("queues")

// listQueues returns all queues, those of the highest priority first, then by name. It also returns the list that the
// API server returned. The error is kit.ErrNotInstalled if the cluster does not serve queues.
func listQueues(ctx context.Context, c *kit.Cluster) ([]scheduling.Queue, *unstructured.UnstructuredList, error) {
	raw, err := c.Objects.Resource(queueResource).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, kit.ErrNotInstalled
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listing queues: %w", err)
	}
	queues := make([]scheduling.Queue, len(raw.Items))
	for i := range raw.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Items[i].Object, &queues[i]); err != nil {
			return nil, nil, fmt.Errorf("reading queue %s: %w", raw.Items[i].GetName(), err)
		}
	}
	slices.SortFunc(queues, func(a, b scheduling.Queue) int {
		if a.Spec.Priority != b.Spec.Priority {
			return int(b.Spec.Priority) - int(a.Spec.Priority)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return queues, raw, nil
}

func getQueue(ctx context.Context, c *kit.Cluster, name string) (*scheduling.Queue, error) {
	raw, err := c.Objects.Resource(queueResource).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no queue %q: \"queue list\" lists them", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading queue %s: %w", name, err)
	}
	q := &scheduling.Queue{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, q); err != nil {
		return nil, fmt.Errorf("reading queue %s: %w", name, err)
	}
	return q, nil
}
