package cli

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
)

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Show the queues of the t9k-scheduler, and who waits in them",
		Long: `Show the queues through which the t9k-scheduler starts jobs: what each of them may use, what it uses, and which groups of pods
wait in it and why.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.queueListCommand(), a.queueDescribeCommand())
	return cmd
}

func (a *app) queueListCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List the queues, those that go first before the others",
		Example: a.example("t9k queue list"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			queues, raw, err := c.queues(cmd.Context())
			if err != nil {
				return err
			}
			if o != "" {
				return printObject(a.Out, o, raw)
			}
			if len(queues) == 0 {
				fmt.Fprintln(a.ErrOut, "No queues.")
				return nil
			}
			return a.printTable(queueTable(queues, time.Now()))
		},
	}
	addOutputFlag(cmd, &o, outputJSON, outputYAML)
	return cmd
}

func (a *app) queueDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "describe QUEUE...",
		Short:   "Show what queues use of what they may, and the groups that wait, in order, each with the reason",
		Example: a.example("t9k queue describe default"),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a queue, such as default; \"queue list\" lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			for i, name := range args {
				if i > 0 {
					fmt.Fprint(a.Out, "\n\n")
				}
				q, err := c.queue(cmd.Context(), name)
				if err != nil {
					return err
				}
				// Whoever may see queues may not see who waits in them.
				waiting, err := c.waiters(cmd.Context(), name)
				if err != nil && !apierrors.IsForbidden(err) {
					return err
				}
				if err := printLines(a.Out, queueDescription(q, waiting, err, time.Now(), styleOf(a.Out), terminalOf(a.Out).width())); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

var (
	queueResource = scheduling.GroupVersion.WithResource("queues")
	groupResource = scheduling.GroupVersion.WithResource("podgroups")
)

// queues lists all queues, in the order in which they are served as far as that does not depend on what they use.
func (c *cluster) queues(ctx context.Context) ([]scheduling.Queue, *unstructured.UnstructuredList, error) {
	raw, err := c.objects.Resource(queueResource).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, errNotInstalled
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

func (c *cluster) queue(ctx context.Context, name string) (*scheduling.Queue, error) {
	raw, err := c.objects.Resource(queueResource).Get(ctx, name, metav1.GetOptions{})
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

// waiters lists those that wait in a queue, the next one first.
func (c *cluster) waiters(ctx context.Context, queue string) ([]waiter, error) {
	groups, err := c.groups(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := c.waitingPods(ctx)
	if err != nil {
		return nil, err
	}
	return waiters(queue, groups, pods), nil
}

// groups lists the groups of all namespaces.
func (c *cluster) groups(ctx context.Context) ([]scheduling.PodGroup, error) {
	list, err := c.objects.Resource(groupResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing groups: %w", err)
	}
	groups := make([]scheduling.PodGroup, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &groups[i]); err != nil {
			return nil, fmt.Errorf("reading group %s: %w", list.Items[i].GetName(), err)
		}
	}
	return groups, nil
}
