package local

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/config"
)

// installQueue creates the default queue if it is missing, and applies the scheduler's role, the admission policies of
// queues and the roles of users.
func (a *apiClient) installQueue(ctx context.Context) error {
	queue, err := config.DefaultQueue()
	if err != nil {
		return err
	}
	resource, _ := meta.UnsafeGuessKindToResource(queue.GroupVersionKind())
	_, err = a.dynamic.Resource(resource).Get(ctx, queue.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = a.apply(ctx, queue) // apply, because the API server delays a create by 2 s while the CRD is new
	}
	if err != nil {
		return fmt.Errorf("installing the queue %s: %w", queue.GetName(), err)
	}
	objects, err := config.SchedulerRole("system:kube-scheduler")
	if err != nil {
		return err
	}
	rules, err := config.QueueAdmission()
	if err != nil {
		return err
	}
	people, err := config.UserRoles()
	if err != nil {
		return err
	}
	objects = slices.Concat(objects, rules, people)
	for _, object := range objects {
		switch err := a.apply(ctx, object); {
		case apierrors.IsNotFound(err) && strings.HasPrefix(object.GetKind(), "MutatingAdmissionPolicy"):
			// An API server before 1.36 does not have these policies. docs/operations.md describes the consequences.
		case err != nil:
			return fmt.Errorf("installing the %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// installWebhook returns a step that applies the operator's admission webhook. The API server calls the webhook at
// address.
func (a *apiClient) installWebhook(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		objects, err := config.Webhook(address)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := a.applyOrReplace(ctx, object); err != nil {
				return fmt.Errorf("installing the %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
		return nil
	}
}
