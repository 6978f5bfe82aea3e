package e2e

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// kindOf finds out which kind of job an object is.
func kindOf(j client.Object) kinds.Kind {
	for _, k := range kinds.All {
		if fmt.Sprintf("%T", k.New()) == fmt.Sprintf("%T", j) {
			return k
		}
	}
	panic(fmt.Sprintf("%T is no job", j))
}

// statusOf is the status of a job of any kind.
func statusOf(j client.Object) *batch.JobStatus { return kindOf(j).Status(j) }

// listOf makes an empty list of jobs of one kind.
func listOf(k kinds.Kind) client.ObjectList { return k.NewList().(client.ObjectList) }

// read reads a job of any kind.
func read[T client.Object](s *space, j T) T {
	s.t.Helper()
	now := j.DeepCopyObject().(T)
	if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(j), now); err != nil {
		s.t.Fatal(err)
	}
	return now
}

// tryChange sends the difference that change makes to a job of any kind, or returns why it was refused.
func tryChange[T client.Object](s *space, j T, change func(T)) error {
	s.t.Helper()
	now := read(s, j)
	base := now.DeepCopyObject().(client.Object)
	change(now)
	return s.client.Patch(s.t.Context(), now, client.MergeFrom(base))
}

// change changes a live job of any kind.
func change[T client.Object](s *space, j T, change func(T)) {
	s.t.Helper()
	if err := tryChange(s, j, change); err != nil {
		s.t.Fatal(err)
	}
}

// awaitStatus waits until cond holds of the status of a job of any kind, and returns the job.
func awaitStatus[T client.Object](s *space, j T, what string, cond func(*batch.JobStatus) bool) T {
	s.t.Helper()
	return await(s, "job "+j.GetName()+": "+what, listOf(kindOf(j)), func(jobs []T) bool {
		return len(jobs) == 1 && cond(statusOf(jobs[0]))
	}, named(j.GetName()))[0]
}

// awaitPhase waits until a job of any kind has a phase.
func awaitPhase[T client.Object](s *space, j T, phase batch.JobPhase) T {
	s.t.Helper()
	j = awaitStatus(s, j, "phase "+string(phase), func(now *batch.JobStatus) bool { return now.Phase == phase || ended(now) })
	if got := statusOf(j).Phase; got != phase {
		s.t.Fatalf("job %s is %s, want %s\n%s", j.GetName(), got, phase, s.dump())
	}
	return j
}

// awaitSeen waits until the status of a job of any kind is about its spec as it is now.
func awaitSeen[T client.Object](s *space, j T) T {
	s.t.Helper()
	generation := read(s, j).GetGeneration()
	return awaitStatus(s, j, "the change is seen", func(now *batch.JobStatus) bool { return now.ObservedGeneration >= generation })
}

func ended(now *batch.JobStatus) bool {
	return now.Phase == batch.JobSucceeded || now.Phase == batch.JobFailed
}

func over(j client.Object) bool { return ended(statusOf(j)) }

// replica finds the status of one replica in that of its job.
func replica(j client.Object, name string) batch.ReplicaStatus {
	tasks := statusOf(j).Tasks
	for i := range tasks {
		for _, r := range tasks[i].Replicas {
			if r.Name == name {
				return r
			}
		}
	}
	return batch.ReplicaStatus{}
}

// condition finds a condition of a job.
func condition(j client.Object, t batch.JobConditionType) batch.JobCondition {
	for _, c := range statusOf(j).Conditions {
		if c.Type == t {
			return c
		}
	}
	return batch.JobCondition{}
}

func isTrue(j client.Object, t batch.JobConditionType) bool {
	return condition(j, t).Status == metav1.ConditionTrue
}

// roleLimits tells how often each replica of a job's roles may restart; -1 stands for no bound.
func roleLimits(j client.Object) map[string]int32 {
	limits := map[string]int32{}
	g, ok := j.(*batch.GenericJob)
	if !ok {
		return limits // training jobs bound the restarts of all replicas together
	}
	for i := range g.Spec.ReplicaSpecs {
		r := &g.Spec.ReplicaSpecs[i]
		limits[r.Type] = 0
		switch {
		case r.RestartPolicy == nil:
		case r.RestartPolicy.Limit != nil:
			limits[r.Type] = *r.RestartPolicy.Limit
		case r.RestartPolicy.Policy == batch.RestartAlways:
			limits[r.Type] = -1
		}
	}
	return limits
}

// jobLimit is the number of restarts of all replicas of a job together; -1 stands for no bound.
func jobLimit(j client.Object) int32 {
	t := trainingOf(j)
	switch {
	case t == nil:
		return -1
	case t.RunPolicy == nil || t.RunPolicy.BackoffLimit == nil:
		return 3
	}
	return *t.RunPolicy.BackoffLimit
}

// trainingOf is what training jobs of all kinds have in common; nil for other jobs.
func trainingOf(j client.Object) *batch.TrainingSpec {
	switch j := j.(type) {
	case *batch.PyTorchTrainingJob:
		return &j.Spec.TrainingSpec
	case *batch.TensorFlowTrainingJob:
		return &j.Spec.TrainingSpec
	}
	return nil
}

// replicasOf is the number of replicas that the spec of a job asks for.
func replicasOf(j client.Object) int32 {
	n := int32(0)
	switch j := j.(type) {
	case *batch.GenericJob:
		for _, r := range j.Spec.ReplicaSpecs {
			n += *r.Replicas
		}
	case *batch.TensorFlowTrainingJob:
		for _, r := range j.Spec.ReplicaSpecs {
			n += *r.Replicas
		}
	case *batch.PyTorchTrainingJob:
		if e := elasticOf(j); e != nil {
			return *e.ExpectedReplicas
		}
		for _, r := range j.Spec.ReplicaSpecs {
			n += *r.Replicas
		}
	}
	return n
}

// elasticOf is the elasticity of a job; nil for a job of a fixed size.
func elasticOf(j client.Object) *batch.ElasticConfig {
	p, ok := j.(*batch.PyTorchTrainingJob)
	if !ok || p.Spec.Elastic == nil || p.Spec.Elastic.Enabled == nil || !*p.Spec.Elastic.Enabled {
		return nil
	}
	e := p.Spec.Elastic.DeepCopy()
	if e.ExpectedReplicas == nil {
		e.ExpectedReplicas = e.MinReplicas
	}
	return e
}
