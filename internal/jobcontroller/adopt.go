package jobcontroller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// identity lists the labels that identify the replica of a pod. It leaves out the label for the attempt, because the
// pod may belong to an earlier attempt than the one that the plan creates.
var identity = []string{batch.LabelJobName, batch.LabelJobKind, batch.LabelComponent, batch.LabelReplicaType, batch.LabelReplicaRank}

// adopt restores the identity labels of a live pod of the job whose label with the job's name is lost or changed. want
// is the object that the job would create. The caches and readLive select by that label, so the job would otherwise
// wait for an object that it never sees. If the label is as it should be, the cache was stale, and adopt does nothing.
// It also does nothing for objects other than pods. It returns errStale if the pod was deleted or replaced in the
// meantime, and records a refusal in exp if the API server refuses the patch.
func (a *actuator) adopt(ctx context.Context, want engine.Object, live *metav1.PartialObjectMetadata, exp *expectations) error {
	name := want.GetLabels()[batch.LabelJobName]
	if _, pod := want.(*corev1.Pod); !pod || live.Labels[batch.LabelJobName] == name {
		return nil
	}
	labels := keep(want.GetLabels(), identity...)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.UID, "labels": labels}})
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: live.Namespace, Name: live.Name}}
	switch err := a.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)); {
	case err == nil:
		log.FromContext(ctx).Info("Put the labels back on a pod that had lost the name of its job", "pod", klog.KObj(live), "job", klog.KRef(live.Namespace, name))
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it was deleted or replaced in the meantime
		return errStale
	case refused(err):
		exp.refusals = []engine.Refusal{{Object: describe(want), Reason: batch.ReasonCreateRefused, Message: fmt.Sprintf(
			"it is there without the label %s=%s, by which the operator finds it, and the label could not be put back: %v; put it back or delete the pod",
			batch.LabelJobName, name, err)}}
		return fmt.Errorf("putting the labels back on %s: %w", describe(want), err)
	default:
		return fmt.Errorf("putting the labels back on %s: %w", describe(want), err)
	}
}
