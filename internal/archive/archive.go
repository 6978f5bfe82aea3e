// Package archive defines the records of jobs, so that users can look up a job after its deletion: the last observed
// job, the attempts of its replicas, its events and the ends of its logs. It is pure: it computes records from
// objects, and usage sums from records. Package store keeps the records, and package recorder writes them. Start
// reading at JobOf.
package archive

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// Job is the record of a job.
type Job struct {
	UID string `json:"uid"`
	// Version is the resourceVersion as a number. The store replaces a record only by one with a larger version.
	Version   int64  `json:"-"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Queue is the queue of the t9k-scheduler that the job names; empty if it names none. User is the user who
	// requested the queue; empty if none was recorded.
	Queue string `json:"queue,omitempty"`
	User  string `json:"user,omitempty"`
	// Phase is the phase at the last observation of the job, and Why explains the phase in one line.
	Phase   string    `json:"phase"`
	Why     string    `json:"why,omitempty"`
	Created time.Time `json:"created"`
	// Ended is when the job finished; zero until then.
	Ended    time.Time `json:"ended,omitzero"`
	Replicas int32     `json:"replicas"`
	Restarts int32     `json:"restarts"`
	// Gone is when the recorder noticed that the job was deleted; zero while the job exists.
	Gone time.Time `json:"gone,omitzero"`
	// Object is the last observed job. Lists omit it.
	Object json.RawMessage `json:"object,omitempty"`
	// Conditions are the current conditions in a record that JobOf returns. In a record that the store returns, they
	// are all conditions that the job has had, oldest first. Lists omit them.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is a condition of a job as of its last transition.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// JobOf returns the record of a job object. The record keeps the object without its managed fields.
func JobOf(kind *kinds.Kind, raw *unstructured.Unstructured) (*Job, error) {
	j, err := observed.New(kind, raw)
	if err != nil {
		return nil, err
	}
	version, err := versionOf(raw)
	if err != nil {
		return nil, err
	}
	slim := raw.DeepCopy()
	slim.SetManagedFields(nil)
	object, err := json.Marshal(slim.Object)
	if err != nil {
		return nil, fmt.Errorf("writing %s as JSON: %w", j.Ref(), err)
	}
	s := j.Status()
	r := &Job{UID: string(j.GetUID()), Version: version, Kind: kind.Name, Namespace: j.GetNamespace(), Name: j.GetName(), Queue: j.Queue(), User: j.User(),
		Phase: string(s.Phase), Why: observed.Explain(s), Created: j.GetCreationTimestamp().UTC(), Replicas: observed.Total(s), Restarts: s.Restarts, Object: object}
	if s.CompletionTime != nil {
		r.Ended = s.CompletionTime.UTC()
	}
	for _, c := range s.Conditions {
		r.Conditions = append(r.Conditions, Condition{string(c.Type), string(c.Status), string(c.Reason), c.Message, c.LastTransitionTime.UTC()})
	}
	return r, nil
}

// Observed returns the job object of a record. It fails for a record from a list, because lists omit the object.
func (r *Job) Observed() (*observed.Job, error) {
	kind, err := kinds.ByName(r.Kind)
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	raw := &unstructured.Unstructured{}
	if err := json.Unmarshal(r.Object, &raw.Object); err != nil {
		return nil, fmt.Errorf("reading %s from the archive: %w", observed.Ref(&kind, r.Name), err)
	}
	return observed.New(&kind, raw)
}

// Event is the record of an event about a job, or of a warning about one of its pods. Job is the UID of the job, and At
// is when the event was last seen. UID is the UID of the event or, for a warning, POD-UID/REASON, so that a later
// warning with the same reason replaces the earlier one.
type Event struct {
	UID     string          `json:"-"`
	Version int64           `json:"-"`
	Job     string          `json:"-"`
	At      time.Time       `json:"-"`
	Object  json.RawMessage `json:"event"`
}

// EventOf returns the record of an event. Its Job is the UID of the object that the event is about.
func EventOf(e *corev1.Event) (*Event, error) {
	version, err := versionOf(e)
	if err != nil {
		return nil, err
	}
	slim := e.DeepCopy()
	slim.ManagedFields = nil
	object, err := json.Marshal(slim)
	if err != nil {
		return nil, fmt.Errorf("writing an event as JSON: %w", err)
	}
	return &Event{UID: string(e.UID), Version: version, Job: string(e.InvolvedObject.UID), At: observed.EventTime(e).UTC(), Object: object}, nil
}

// Log is the end of the log of one container of an attempt. Attempt and Job are UIDs, and At is when the recorder read
// the log.
type Log struct {
	Attempt, Job, Container string
	At                      time.Time
	Text                    []byte
	// Cut is true if the beginning of the log is missing from Text.
	Cut bool
}

// JobOfPod returns the UID and kind of the job that a pod belongs to. Both are empty if the pod does not belong to a
// job.
func JobOfPod(p *corev1.Pod) (uid, kind string) {
	owner := metav1.GetControllerOf(p)
	if owner == nil || p.Labels[batch.LabelJobName] == "" {
		return "", ""
	}
	if k, err := kinds.ByName(owner.Kind); err != nil || owner.APIVersion != batch.GroupVersion.String() || k.Name != p.Labels[batch.LabelJobKind] {
		return "", ""
	}
	return string(owner.UID), owner.Kind
}

// versionOf returns a resourceVersion as a number. Kubernetes guarantees that the resourceVersions of one resource can
// be compared as numbers.
func versionOf(o metav1.Object) (int64, error) {
	v, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resourceVersion of %s/%s is no number: %w", o.GetNamespace(), o.GetName(), err)
	}
	return v, nil
}
