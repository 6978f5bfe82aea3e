package operator

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboardv1beta1 "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/jobcontroller"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/queue"
	"tensorstack.dev/batch/internal/tensorboard"
	"tensorstack.dev/batch/internal/webhook"
)

// addParts adds the starters of all parts to a manager: the controllers, which run in the leader, and the parts of
// admission, which run in every replica. ready gets a check for each part.
func (o *options) addParts(ctx context.Context, mgr ctrl.Manager, shapes *queue.Shapes, ready *probes) error {
	parts, err := o.leaderParts(ctx, mgr, shapes)
	if err != nil {
		return err
	}
	admission := []part{{"admission-to-queues", []client.Object{&scheduling.Queue{}, &scheduling.PodGroup{}}, func(ctx context.Context) error {
		if err := shapes.Watch(ctx); err != nil || !o.servesWebhook() {
			return err
		}
		return webhook.AddPodHook(ctx, mgr)
	}}}
	for _, s := range []*starter{{mgr: mgr, parts: parts}, {mgr: mgr, parts: admission, everywhere: true}} {
		if err := s.addTo(ready); err != nil {
			return err
		}
	}
	return nil
}

// leaderParts returns the controllers, which run only in the leading operator. It also reads the file of initial
// queues, and adds the recorder of the jobs' events to the manager.
func (o *options) leaderParts(ctx context.Context, mgr ctrl.Manager, shapes *queue.Shapes) ([]part, error) {
	initial, err := queue.ReadInitial(o.settings.QueuesFile)
	if err != nil {
		return nil, err
	}
	jobs, err := jobcontroller.New(ctx, mgr, o.jobOptions())
	if err != nil {
		return nil, err
	}
	pod, service, group, board := &corev1.Pod{}, &corev1.Service{}, &scheduling.PodGroup{}, &tensorboardv1beta1.TensorBoard{}
	var parts []part
	for _, kind := range kinds.All {
		parts = append(parts, part{kind.Plural, []client.Object{kind.New(), pod, service, group}, func(ctx context.Context) error {
			return jobs.Add(ctx, kind)
		}})
		if kind.Training == nil {
			continue
		}
		parts = append(parts, part{"tensorboards-of-" + kind.Plural, []client.Object{kind.New(), board}, func(context.Context) error {
			return tensorboard.AddLink(mgr, kind)
		}})
	}
	return append(parts,
		part{"tensorboards", []client.Object{board, &appsv1.Deployment{}, service, pod}, func(ctx context.Context) (err error) {
			opts := o.tensorBoardOptions()
			if opts.Board.HelperImage == "" {
				if opts.Board.HelperImage, err = ownImage(ctx, mgr.GetAPIReader()); err != nil {
					return err
				}
			}
			return tensorboard.Add(mgr, opts)
		}},
		part{"queues", []client.Object{&scheduling.Queue{}, group, pod}, func(ctx context.Context) error { return queue.Add(ctx, mgr, shapes, initial) }},
	), nil
}
