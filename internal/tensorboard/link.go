package tensorboard

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// AddLink adds the controller that creates the TensorBoards of the jobs of one kind to a manager.
func AddLink(mgr ctrl.Manager, kind kinds.Kind) error {
	l := &link{kind: kind, client: mgr.GetClient()}
	err := builder.ControllerManagedBy(mgr).
		Named("tensorboards-of-"+kind.Plural).
		For(kind.New(), builder.WithPredicates(l.changes())).
		Owns(&tensorboard.TensorBoard{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(l)
	if err != nil {
		return fmt.Errorf("adding the controller of the TensorBoards of %s: %w", kind.Plural, err)
	}
	return nil
}

// link creates the TensorBoards that jobs of one kind specify, and writes the states of the TensorBoards into the
// status of the jobs.
type link struct {
	kind   kinds.Kind
	client client.Client
}

// Reconcile makes one pass over one job.
func (l *link) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job := l.kind.New()
	if err := l.client.Get(ctx, req.NamespacedName, job); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", l.kind.Name, req, err)
	}
	if spec, _ := l.kind.Training(job); spec.TensorBoardSpec == nil || job.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	tb := &tensorboard.TensorBoard{}
	err := l.client.Get(ctx, req.NamespacedName, tb)
	result := reconcile.Result{}
	var dependent *batch.DependentStatus
	switch {
	case apierrors.IsNotFound(err):
		tb = l.board(job)
		switch err := l.client.Create(ctx, tb); {
		case err == nil:
			dependent = dependentStatus(tb)
			log.FromContext(ctx).Info("Created the TensorBoard of a job", "kind", l.kind.Name, "job", klog.KObj(job), "tensorBoard", klog.KObj(tb))
		case apierrors.IsAlreadyExists(err):
			return reconcile.Result{RequeueAfter: staleDelay}, nil
		case isPermanent(err):
			dependent = &batch.DependentStatus{Type: corev1.EventTypeWarning, Reason: tensorboard.ReasonCreateRefused, Note: err.Error(), Action: "Retry"}
			result.RequeueAfter = refusedDelay
		default:
			return reconcile.Result{}, fmt.Errorf("creating TensorBoard %s: %w", req, err)
		}
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading TensorBoard %s: %w", req, err)
	case !metav1.IsControlledBy(tb, job):
		dependent = &batch.DependentStatus{Type: corev1.EventTypeWarning, Reason: tensorboard.ReasonNameTaken, Action: "Retry",
			Note: fmt.Sprintf("TensorBoard %q exists and does not belong to this job: delete it, or rename the job", tb.Name)}
		result.RequeueAfter = refusedDelay
	default:
		dependent = dependentStatus(tb)
	}
	if err := l.write(ctx, job, dependent); err != nil {
		return retryIfStale(err)
	}
	return result, nil
}

// board returns the TensorBoard that a job specifies.
func (l *link) board(job kinds.Object) *tensorboard.TensorBoard {
	spec, _ := l.kind.Training(job)
	tb := &tensorboard.TensorBoard{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.GetName(), Namespace: job.GetNamespace(),
			Labels:          map[string]string{batch.LabelJobName: job.GetName(), batch.LabelJobKind: l.kind.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, l.gvk())},
		},
		Spec: *spec.TensorBoardSpec.DeepCopy(),
	}
	if by := job.GetAnnotations()[scheduling.AnnotationRequestedBy]; by != "" { // the job's user, not the operator
		tb.Annotations = map[string]string{scheduling.AnnotationRequestedBy: by}
	}
	return tb
}

func (l *link) gvk() schema.GroupVersionKind { return batch.GroupVersion.WithKind(l.kind.Name) }

// dependentStatus returns the status of a TensorBoard in the form of a job's status.tensorboard.
func dependentStatus(tb *tensorboard.TensorBoard) *batch.DependentStatus {
	dependent := &batch.DependentStatus{
		Dependent: &corev1.ObjectReference{APIVersion: tensorboard.GroupVersion.String(), Kind: "TensorBoard",
			Namespace: tb.Namespace, Name: tb.Name, UID: tb.UID},
		Type: corev1.EventTypeNormal, Reason: tensorboard.ReasonStarting, Note: "It is being started.", Action: "Wait",
	}
	c := board.ReadyCondition(tb)
	if c.Type == "" {
		return dependent
	}
	dependent.Ready, dependent.Reason, dependent.Note, dependent.Action = c.Status == metav1.ConditionTrue, c.Reason, c.Message, "None"
	if c.Reason == tensorboard.ReasonStarting {
		dependent.Action = "Wait"
	}
	if board.Wrong(c) {
		dependent.Type, dependent.Action = corev1.EventTypeWarning, "Retry"
	}
	return dependent
}

// write updates the TensorBoard's state in the job's status. The update contains the resourceVersion that was read, so
// it fails if another client has changed the job. write does nothing if the job has no status yet, because the job's
// own controller writes the first status.
func (l *link) write(ctx context.Context, job kinds.Object, dependent *batch.DependentStatus) error {
	_, status := l.kind.Training(job)
	if status.Phase == "" || equality.Semantic.DeepEqual(status.TensorBoard, dependent) {
		return nil
	}
	next := job.DeepCopyObject().(kinds.Object)
	_, status = l.kind.Training(next)
	status.TensorBoard = dependent
	if err := l.client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing the state of the TensorBoard into %s %s/%s: %w", l.kind.Name, job.GetNamespace(), job.GetName(), err)
	}
	return nil
}

// changes accepts only events of jobs that specify a TensorBoard: when the job is created, when it gets its first
// status, and when status.tensorboard changes.
func (l *link) changes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return l.wantsTensorBoard(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if !l.wantsTensorBoard(e.ObjectNew) {
				return false
			}
			_, old := l.kind.Training(e.ObjectOld.(kinds.Object))
			_, now := l.kind.Training(e.ObjectNew.(kinds.Object))
			return (old.Phase == "") != (now.Phase == "") || !equality.Semantic.DeepEqual(old.TensorBoard, now.TensorBoard)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// wantsTensorBoard reports whether a job specifies a TensorBoard.
func (l *link) wantsTensorBoard(o client.Object) bool {
	spec, _ := l.kind.Training(o.(kinds.Object))
	return spec.TensorBoardSpec != nil
}
