package kinds

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// isElastic tells whether the number of a job's replicas may change. Without torchrun, what the job says of it has no effect.
func isElastic(spec *batch.PyTorchTrainingJobSpec) bool {
	e := spec.Elastic
	return e != nil && switchedOn(e.Enabled, e.Enable) && torchrunOn(spec.TorchrunConfig)
}

// elastic lowers elastic scaling: it shares the expected replicas among the roles.
func (l *lowering) elastic(spec *batch.PyTorchTrainingJobSpec, path *field.Path) {
	weights := l.weights(spec.ReplicaSpecs)
	if !isElastic(spec) {
		return
	}
	e, at := spec.Elastic, path.Child("elastic")
	lo, hi, want := l.size(e, at)
	if l.senseless = l.senseless || lo < 1 || lo > hi || hi > max(maxConverted, l.opts.MaxReplicas); l.senseless || len(weights) == 0 {
		return
	}
	want = min(max(want, lo), hi)
	for i, n := range share(want, weights) {
		l.job.Roles[i].Replicas = n
	}
	l.badCount = false
	l.job.Elastic = &engine.Elastic{Min: lo, Max: hi}
}

// size is how many replicas an elastic job has at least and at most, and how many it is to have now.
func (l *lowering) size(e *batch.ElasticConfig, path *field.Path) (lo, hi, want int) {
	before := len(l.errs)
	lo, hi = l.bound(e.MinReplicas, path.Child("minReplicas")), l.bound(e.MaxReplicas, path.Child("maxReplicas"))
	want = lo
	if n := orZero(e.ExpectedReplicas); n != 0 { // the API server writes 0 where nothing is said
		want = int(n)
	}
	switch {
	case len(l.errs) > before:
	case lo > hi:
		l.invalid(path.Child("minReplicas"), lo, fmt.Sprintf("more than maxReplicas, which is %d: lower it, or raise maxReplicas", hi))
	case want < lo || want > hi:
		l.invalid(path.Child("expectedReplicas"), want, fmt.Sprintf("outside of the bounds of this job: choose a number from %d to %d", lo, hi))
	case hi > l.opts.MaxReplicas:
		l.invalid(path.Child("maxReplicas"), hi, fmt.Sprintf("the limit is %d: ask for fewer, or have the operator's limit raised", l.opts.MaxReplicas))
	}
	return lo, hi, want
}

func (l *lowering) weights(roles []batch.PyTorchReplicaSpec) []int {
	weights := make([]int, len(roles))
	for i := range roles {
		weights[i] = weightOf(roles[i].ScalingWeight)
		if weights[i] < 0 || weights[i] > maxWeight {
			l.invalid(l.specPaths[i].Child("scalingWeight"), weights[i], fmt.Sprintf("a weight is a number from 0 to %d: choose one of these", maxWeight))
			weights[i] = min(max(weights[i], 0), maxWeight)
		}
	}
	return weights
}

// maxWeight is the largest scalingWeight.
const maxWeight = 1_000_000

func (l *lowering) bound(n *int32, path *field.Path) int {
	switch {
	case n == nil:
		l.required(path, "an elastic job has bounds: give the least and the largest number of replicas")
		return 0
	case *n < 1:
		l.invalid(path, *n, "a number of replicas to train with is 1 or more: raise it")
	}
	return int(*n)
}

func weightOf(w *int32) int {
	if w == nil {
		return 1
	}
	return int(*w)
}

// share divides n replicas among roles by weight, by the method of the largest remainder; of equal remainders the earlier
// role's comes first. The first role, which has the master, gets at least 1 of n > 0. Then every role with a weight gets at
// least 1 while there are enough, at the cost of the role that has most.
func share(n int, weights []int) []int {
	weights = slices.Clone(weights)
	total := 0
	for _, w := range weights {
		total += w
	}
	if total == 0 {
		weights[0], total = 1, 1
	}
	shares, order, rest := make([]int, len(weights)), make([]int, len(weights)), n
	for i, w := range weights {
		shares[i], order[i] = n*w/total, i
		rest -= shares[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(n*weights[b]%total, n*weights[a]%total) })
	for _, i := range order[:rest] {
		shares[i]++
	}
	for i, w := range weights {
		if shares[i] > 0 || w == 0 && i > 0 {
			continue
		}
		most := 0
		for k := range shares {
			if shares[k] > shares[most] {
				most = k
			}
		}
		if shares[most] > 1 || i == 0 && shares[most] == 1 {
			shares[most]--
			shares[i]++
		}
	}
	return shares
}

// defaultPyTorch writes down how many replicas an elastic job has, for autoscalers do nothing where they see no number.
func defaultPyTorch(o Object) {
	spec := &o.(*batch.PyTorchTrainingJob).Spec
	if isElastic(spec) && orZero(spec.Elastic.ExpectedReplicas) == 0 {
		spec.Elastic.ExpectedReplicas = spec.Elastic.MinReplicas
	}
}
