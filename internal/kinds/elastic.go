package kinds

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// isElastic reports whether the number of a job's replicas may change. Without torchrun the elastic field has no
// effect.
func isElastic(spec *batch.PyTorchTrainingJobSpec) bool {
	e := spec.Elastic
	return e != nil && switchedOn(e.Enabled, e.Enable) && torchrunOn(spec.TorchrunConfig)
}

// elastic converts elastic scaling. It distributes the expected replicas among the roles.
func (c *conversion) elastic(spec *batch.PyTorchTrainingJobSpec) {
	if !isElastic(spec) {
		return
	}
	lo, hi, want := elasticSize(spec.Elastic)
	if c.uninterpretable = c.uninterpretable || lo < 1 || lo > hi || hi > maxReplicas; c.uninterpretable || len(spec.ReplicaSpecs) == 0 {
		return
	}
	weights := make([]int, len(spec.ReplicaSpecs))
	for i := range weights {
		weights[i] = min(max(weightOf(spec.ReplicaSpecs[i].ScalingWeight), 0), maxWeight)
	}
	for i, n := range share(min(max(want, lo), hi), weights) {
		c.job.Roles[i].Replicas = n
	}
	c.badCount = false
	c.job.Elastic = &engine.Elastic{Min: lo, Max: hi}
}

// elasticSize returns the smallest, the largest and the expected number of replicas of an elastic job.
func elasticSize(e *batch.ElasticConfig) (lo, hi, want int) {
	lo, hi = int(orZero(e.MinReplicas)), int(orZero(e.MaxReplicas))
	if n := orZero(e.ExpectedReplicas); n != 0 { // the API server writes 0 if the field is unset
		return lo, hi, int(n)
	}
	return lo, hi, lo
}

// maxWeight is the largest value of scalingWeight.
const maxWeight = 1_000_000

// elastic validates elastic scaling.
func (v *validator) elastic(spec *batch.PyTorchTrainingJobSpec, path *field.Path) {
	for i := range spec.ReplicaSpecs {
		if w := weightOf(spec.ReplicaSpecs[i].ScalingWeight); w < 0 || w > maxWeight {
			v.invalid(v.specPaths[i].Child("scalingWeight"), w, fmt.Sprintf("a weight is a number from 0 to %d: choose one of these", maxWeight))
		}
	}
	if !isElastic(spec) {
		return
	}
	e, path, before := spec.Elastic, path.Child("elastic"), len(v.errs)
	v.bound(e.MinReplicas, path.Child("minReplicas"))
	v.bound(e.MaxReplicas, path.Child("maxReplicas"))
	lo, hi, want := elasticSize(e)
	limit := min(v.limits.MaxReplicas, maxReplicas)
	switch {
	case len(v.errs) > before:
	case lo > hi:
		v.invalid(path.Child("minReplicas"), lo, fmt.Sprintf("more than maxReplicas, which is %d: lower it, or raise maxReplicas", hi))
	case want < lo || want > hi:
		v.invalid(path.Child("expectedReplicas"), want, fmt.Sprintf("outside of the bounds of this job: choose a number from %d to %d", lo, hi))
	case hi > limit:
		v.invalid(path.Child("maxReplicas"), hi, fmt.Sprintf("the limit is %d: ask for fewer, or have the operator's limit raised", limit))
	}
}

func (v *validator) bound(n *int32, path *field.Path) {
	switch {
	case n == nil:
		v.required(path, "an elastic job has bounds: give the least and the largest number of replicas")
	case *n < 1:
		v.invalid(path, *n, "a number of replicas to train with is 1 or more: raise it")
	}
}

func weightOf(w *int32) int {
	if w == nil {
		return 1
	}
	return int(*w)
}

// share distributes n replicas among roles by weight, using the largest remainder method. If remainders are equal, the
// earlier role comes first. The first role, which has the master, gets at least 1 if n > 0, and all replicas if all
// weights are 0. Then every role with a weight gets at least 1 as long as there are enough replicas; they are taken
// from the role with the most replicas.
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

// defaultPyTorch sets expectedReplicas of an elastic job to minReplicas if it is unset or 0. Autoscalers do not scale a
// job without a value.
func defaultPyTorch(o Object) {
	spec := &o.(*batch.PyTorchTrainingJob).Spec
	if isElastic(spec) && orZero(spec.Elastic.ExpectedReplicas) == 0 {
		spec.Elastic.ExpectedReplicas = spec.Elastic.MinReplicas
	}
}
