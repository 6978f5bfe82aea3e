package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// byBob is the value of the annotation that records the requester if bob is the requester.
const byBob = `["bob","system:authenticated"]`

// TestJobsStartByTheRightOfTheirRequester verifies that each job records the user who chose its queue, that no user can
// forge the record, and that the job starts only if that user may use the queue.
func TestJobsStartByTheRightOfTheirRequester(t *testing.T) {
	t.Parallel()
	s := newStageOf(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs, local.Webhook, local.Scheduler, local.Operator}})
	s.node("n", 64, nil)
	s.queue(free, "", 0)
	alice, bob := s.as("alice"), s.as("bob")
	for _, queue := range []string{"later", "narrowed"} {
		s.mayUse("bob", queue)
	}
	s.mayUse("service", "")
	s.Await("the API server records requesters", func() error {
		pod, job, forged := podOf(nil), s.jobsOf(free, "1")["GenericJob"], s.membersOf(free)["PodGroup"]
		pod.Namespace, forged = s.Namespace, forged.DeepCopyObject().(client.Object)
		forged.SetNamespace(s.Namespace)
		forged.SetAnnotations(map[string]string{scheduling.AnnotationRequestedBy: byBob})
		return errors.Join(alice.Create(t.Context(), pod, client.DryRunAll), isBy(pod, byAlice), alice.Create(t.Context(), job, client.DryRunAll),
			isBy(job, byAlice), refusedWith(alice.Create(t.Context(), forged, client.DryRunAll), "only the API server may set the annotation"))
	})
	t.Run("a job that is created", func(t *testing.T) { s.with(t).requestersOfNewJobs(alice, s.as("service")) })
	t.Run("a job that is changed", func(t *testing.T) { s.with(t).requestersOfLiveJobs(alice, bob, s.as("service")) })
	t.Run("a job that is applied again", func(t *testing.T) { s.with(t).requestersOfAppliedJobs(alice, bob) })
	t.Run("a TensorBoard", func(t *testing.T) { s.with(t).requestersOfBoards(alice) })
	t.Run("a queue that is narrowed", func(t *testing.T) { s.with(t).narrowedMeanwhile(alice, bob) })
	t.Run("a queue that is created later", func(t *testing.T) { s.with(t).queueComesLater(alice, bob) })
}

// withRequester sets the annotation that records the requester of an object, and returns the object.
func withRequester[T client.Object](o T, by string) T {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[scheduling.AnnotationRequestedBy] = by
	o.SetAnnotations(annotations)
	return o
}

// requestersOfNewJobs verifies which requester a new job records, whatever its manifest says: the user who creates the
// job, or nobody if the job names no queue. Only a user who may use all queues can record another requester.
func (s *stage) requestersOfNewJobs(alice, service client.Client) {
	const odd = `o"neil\ <a&b>`
	somebodyOdd := s.as(odd)
	pod := podOf(nil)
	pod.Namespace = s.Namespace
	s.Must(somebodyOdd.Create(s.Context(), pod, client.DryRunAll))
	generous := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "generous", Labels: map[string]string{scheduling.LabelDefaultQueue: free}}}
	s.Must(s.Client.Create(s.Context(), generous))
	for kind := range s.jobsOf(free, "1") {
		job := func() *unstructured.Unstructured { return asMap(s, s.jobsOf(free, "1")[kind]) }
		unqueued := func() *unstructured.Unstructured {
			o := job()
			unstructured.RemoveNestedField(o.Object, "spec", "scheduler")
			return o
		}
		elsewhere := unqueued()
		elsewhere.SetNamespace(generous.Name)
		for name, test := range map[string]struct {
			job  *unstructured.Unstructured
			as   client.Client
			want string
		}{
			"without a requester":                   {job(), alice, byAlice},
			"with another user as the requester":    {withRequester(job(), byBob), alice, byAlice},
			"with an invalid requester":             {withRequester(job(), "bob"), alice, byAlice},
			"beside other annotations":              {withRequester(mine(job()), byBob), alice, byAlice},
			"for another user, by right":            {withRequester(job(), byAlice), service, byAlice},
			"for oneself, with all rights":          {job(), service, `["service","system:authenticated"]`},
			"without a queue":                       {unqueued(), alice, ""},
			"by a user with an odd name":            {job(), somebodyOdd, pod.Annotations[scheduling.AnnotationRequestedBy]},
			"with the queue of its namespace":       {elsewhere, alice, byAlice},
			"without a queue, by the right to name": {withRequester(unqueued(), byAlice), service, byAlice},
		} {
			s.Run(kind+"/"+name, func(t *testing.T) {
				if err := errors.Join(test.as.Create(t.Context(), test.job, client.DryRunAll), isBy(test.job, test.want)); err != nil {
					t.Error(err)
				}
			})
		}
		if o := withRequester(mine(job()), byBob); alice.Create(s.Context(), o, client.DryRunAll) != nil || o.GetAnnotations()["mine"] != "yes" {
			s.Errorf("%s: the job lost another annotation: %v", kind, o.GetAnnotations())
		}
	}
	if note := pod.Annotations[scheduling.AnnotationRequestedBy]; !strings.Contains(note, "<a&b>") {
		s.Errorf("the recorded requester is %s", note)
	}
}

func mine(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetAnnotations(map[string]string{"mine": "yes"})
	return o
}

// requestersOfLiveJobs verifies that changes of a job do not change its requester, unless a user who may use all queues
// sets another requester.
func (s *stage) requestersOfLiveJobs(alice, bob, service client.Client) {
	const takenOver = `{"metadata":{"annotations":{"` + scheduling.AnnotationRequestedBy + `":"[\"bob\",\"system:authenticated\"]"}}}`
	for kind, job := range s.jobsOf(free, "1") {
		s.Must(alice.Create(s.Context(), job))
		read := func() *unstructured.Unstructured {
			o := asMap(s, job)
			s.Must(s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
			return o
		}
		for name, patch := range map[string]string{
			"it is paused":                       `{"spec":{"runMode":{"pause":{"enabled":true}}}}`,
			"it is resumed":                      `{"spec":{"runMode":{"pause":{"enabled":false}}}}`,
			"its priority changes":               `{"spec":{"scheduler":{"t9kScheduler":{"priority":7}}}}`,
			"the requester is removed":           `{"metadata":{"annotations":{"` + scheduling.AnnotationRequestedBy + `":null}}}`,
			"all annotations are removed":        `{"metadata":{"annotations":null}}`,
			"the requester is changed":           `{"metadata":{"annotations":{"` + scheduling.AnnotationRequestedBy + `":"[\"service\"]"}}}`,
			"another user becomes the requester": takenOver,
		} {
			for who, as := range map[string]client.Client{"another user": bob, "the requester": alice} {
				o := read()
				if err := errors.Join(as.Patch(s.Context(), o, mergePatch([]byte(patch))), isBy(o, byAlice), isBy(read(), byAlice)); err != nil {
					s.Errorf("%s: %s, by %s: %v", kind, name, who, err)
				}
			}
		}
		o := read()
		if err := errors.Join(service.Patch(s.Context(), o, mergePatch([]byte(takenOver))), isBy(o, byBob)); err != nil {
			s.Errorf("%s: changing the requester by a user who may use all queues: %v", kind, err)
		}
		s.Must(alice.Patch(s.Context(), o, mergePatch([]byte(`{"spec":{"runMode":{"pause":{"enabled":false}}}}`))))
		s.Await("the group of "+job.GetName()+" records the same requester", func() error {
			group := &scheduling.PodGroup{}
			return errors.Join(s.Client.Get(s.Context(), client.ObjectKeyFromObject(job), group), isBy(group, byBob))
		})
		s.Must(s.Client.Delete(s.Context(), job))
	}
}

// requestersOfAppliedJobs verifies that a manifest without the annotation can be applied again: the annotation is kept,
// and nothing else changes.
func (s *stage) requestersOfAppliedJobs(alice, bob client.Client) {
	for kind, job := range s.jobsOf(free, "1") {
		manifest := asMap(s, job)
		manifest.SetName("applied-" + strings.ToLower(kind))
		manifest.SetGenerateName("")
		unstructured.RemoveNestedField(manifest.Object, "status")
		s.Must(unstructured.SetNestedField(manifest.Object, true, "spec", "runMode", "pause", "enabled"))
		data, err := manifest.MarshalJSON()
		s.Must(err)
		apply := func(as client.Client) (*unstructured.Unstructured, error) {
			o := manifest.DeepCopy()
			err := as.Patch(s.Context(), o, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner("t9k"), client.ForceOwnership)
			return o, err
		}
		for i, as := range []client.Client{alice, alice, bob} {
			o, err := apply(as)
			if err := errors.Join(err, isBy(o, byAlice)); err != nil {
				s.Errorf("%s: apply number %d: %v", kind, i+1, err)
			}
			if o.GetGeneration() != 1 {
				s.Errorf("%s: generation after apply number %d: %d", kind, i+1, o.GetGeneration())
			}
			for _, f := range o.GetManagedFields() {
				if f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), "requested-by") {
					s.Errorf("%s: %s manages the annotation", kind, f.Manager)
				}
			}
		}
		// Replacing the whole object with the manifest also keeps the annotation. The replacement is retried, because
		// the operator writes the status at the same time.
		live, replaced := asMap(s, job), &unstructured.Unstructured{}
		s.Await(kind+" is replaced", func() error {
			s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: manifest.GetName()}, live))
			replaced = manifest.DeepCopy()
			replaced.SetResourceVersion(live.GetResourceVersion())
			return bob.Update(s.Context(), replaced)
		})
		if err := isBy(replaced, byAlice); err != nil {
			s.Errorf("%s: replaced: %v", kind, err)
		}
		s.Must(s.Client.Delete(s.Context(), live))
	}
}

// requestersOfBoards verifies that a training job that names a queue only for its TensorBoard also records its
// requester, and that the TensorBoard gets the record.
func (s *stage) requestersOfBoards(alice client.Client) {
	for _, kind := range kinds.All {
		if kind.Training == nil {
			continue
		}
		job := asMap(s, s.jobsOf(free, "1")[kind.Name])
		job.SetName("boards-" + strings.ToLower(kind.Name))
		unstructured.RemoveNestedField(job.Object, "spec", "scheduler")
		s.Must(unstructured.SetNestedField(job.Object, map[string]any{"image": "none", "trainingLogFilesets": []any{"t9k://pvc/logs/here"},
			"scheduler": map[string]any{"t9kScheduler": map[string]any{"queue": free}}}, "spec", "tensorboardSpec"))
		if err := errors.Join(alice.Create(s.Context(), withRequester(job, byBob)), isBy(job, byAlice)); err != nil {
			s.Errorf("%s: %v", kind.Name, err)
		}
		board := &unstructured.Unstructured{}
		board.SetGroupVersionKind(tensorboard.GroupVersion.WithKind("TensorBoard"))
		s.Await("the TensorBoard of "+job.GetName(), func() error {
			return s.Client.Get(s.Context(), client.ObjectKeyFromObject(job), board)
		})
		if err := isBy(board, byAlice); err != nil {
			s.Error(err)
		}
		s.Must(s.Client.Delete(s.Context(), job))
	}
}

// jobsBy creates a job of each kind, with two pods of 1 CPU each, with the client as. It returns the sorted names of
// the jobs, which contain requester.
func (s *stage) jobsBy(as client.Client, requester, queue string) (names []string) {
	s.Helper()
	for kind, job := range s.jobsOf(queue, "1") {
		name := strings.ToLower(fmt.Sprintf("%s-%s-%s", queue, requester, kind))
		job.SetName(name)
		job.SetGenerateName("")
		s.Must(as.Create(s.Context(), job))
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// awaitJobReports waits until the condition Running of the job with the name, whatever its kind, is False with a
// message that contains the words.
func (s *stage) awaitJobReports(name, words string) {
	s.Helper()
	s.Await("job "+name+" reports that "+words, func() error {
		for _, kind := range kinds.All {
			o := kind.New()
			if s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, o.(client.Object)) != nil {
				continue // a job of another kind
			}
			for _, c := range kind.Status(o).Conditions {
				if c.Type == batch.JobRunningCondition && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, words) {
					return nil
				}
			}
			return fmt.Errorf("its conditions are %+v", kind.Status(o).Conditions)
		}
		return errors.New("there is no such job")
	})
}

// narrowedMeanwhile verifies that, if a queue stops selecting the namespace while jobs wait, only jobs whose requesters
// have the right to use the queue start.
func (s *stage) narrowedMeanwhile(alice, bob client.Client) {
	s.queue("narrowed", "2", 0)
	s.group("blocker", "narrowed", 1, "1")
	s.awaitBound("blocker", 1)
	ofAlice, ofBob := s.jobsBy(alice, "alice", "narrowed"), s.jobsBy(bob, "bob", "narrowed")
	for _, name := range slices.Concat(ofAlice, ofBob) {
		s.awaitReason(name, scheduling.ReasonQuotaExceeded)
	}
	s.changeQueue("narrowed", func(q *scheduling.QueueSpec) { q.NamespaceSelector = nil; q.Quota.Requests = cpus("20") })
	s.admits("narrowed", ofAlice, ofBob)
	s.mayUse("alice", "narrowed")
	for _, name := range ofAlice {
		s.awaitBound(name, 2)
	}
}

// queueComesLater verifies that, if a queue that does not select the namespace is created while jobs wait for it,
// only jobs whose requesters have the right to use the queue start.
func (s *stage) queueComesLater(alice, bob client.Client) {
	ofAlice, ofBob := s.jobsBy(alice, "alice", "later"), s.jobsBy(bob, "bob", "later")
	for _, name := range slices.Concat(ofAlice, ofBob) {
		s.awaitReason(name, scheduling.ReasonQueueNotFound)
	}
	s.queue("later", "", 0, func(q *scheduling.QueueSpec) { q.NamespaceSelector = nil })
	s.admits("later", ofAlice, ofBob)
	s.changeQueue("later", func(q *scheduling.QueueSpec) { q.NamespaceSelector = &metav1.LabelSelector{} })
	for _, name := range ofAlice {
		s.awaitBound(name, 2)
	}
}

// admits verifies that bob's jobs start and that alice's jobs wait, because alice has no right to use the queue.
func (s *stage) admits(queue string, ofAlice, ofBob []string) {
	s.Helper()
	for _, name := range ofBob {
		s.awaitBound(name, 2)
	}
	for _, name := range ofAlice {
		s.awaitReason(name, scheduling.ReasonNotAdmitted)
		s.awaitJobReports(name, "queue "+queue+" is not for namespace default, which its namespaceSelector does not select, and alice has no right to use it")
		if n := s.bound(name); n != 0 {
			s.Errorf("%d pods of %s have started", n, name)
		}
	}
}
