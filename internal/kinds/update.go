package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// ValidateUpdate returns an error for each change that a live job does not accept.
func (k Kind) ValidateUpdate(updated, old Object) field.ErrorList {
	for _, o := range []Object{updated, old} {
		if !k.owns(o) {
			return k.wrongType(o)
		}
	}
	var c changes
	k.validateUpdate(updated, old, &c)
	return c.errs
}

// changes collects the changes that a live job does not accept.
type changes struct{ errs field.ErrorList }

// keep rejects any change of a field. Values that are semantically equal, such as nil and an empty list, count as
// unchanged.
func (c *changes) keep(path *field.Path, updated, old any) {
	if !equality.Semantic.DeepEqual(updated, old) {
		c.refuse(path, "cannot change on a live job: create a new job")
	}
}

func (c *changes) refuse(path *field.Path, detail string) {
	c.errs = append(c.errs, field.Forbidden(path, detail))
}

// sameRoles rejects roles that were added, removed, renamed or reordered. It returns whether the roles are the same.
func sameRoles[T any](c *changes, path *field.Path, updated, old []T, name func(*T) string) bool {
	if slices.EqualFunc(updated, old, func(a, b T) bool { return name(&a) == name(&b) }) {
		return true
	}
	c.refuse(path, "roles cannot be added, removed, renamed or reordered on a live job: create a new job")
	return false
}

// runMode rejects changes to the contents of the modes. The switches may change, and modes whose contents are empty
// may be added or removed.
func (c *changes) runMode(path *field.Path, updated, old *batch.RunMode) {
	a, b := orZero(updated), orZero(old)
	c.keep(path.Child("debug", "replicaSpecs"), orZero(a.Debug).ReplicaSpecs, orZero(b.Debug).ReplicaSpecs)
	c.keep(path.Child("pause", "resumeSpecs"), orZero(a.Pause).ResumeSpecs, orZero(b.Pause).ResumeSpecs)
}

// scheduler rejects changes to the scheduler and the queue. The priority may change.
func (c *changes) scheduler(path *field.Path, updated, old *batch.SchedulePolicy) {
	a, b := orZero(updated).T9kScheduler, orZero(old).T9kScheduler
	if (a == nil) != (b == nil) {
		c.refuse(path.Child("t9kScheduler"), "cannot be added or removed on a live job: create a new job")
		return
	}
	c.keep(path.Child("t9kScheduler", "queue"), orZero(a).Queue, orZero(b).Queue)
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
