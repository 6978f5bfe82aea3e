package kinds

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxPodSize is the largest size of one pod in bytes. etcd accepts objects of up to 1.5 MiB, and the API server
	// adds managed fields to a pod.
	maxPodSize = 1 << 20
	// maxJobSize is the largest size in bytes of all pods of a job together, for up to DefaultMaxReplicas replicas. A
	// pod is written about five times in its life, and etcd holds 2 GiB by default. The bound grows with the
	// installation's limit of replicas.
	maxJobSize = 256 << 20
	// podOverhead is the size in bytes of the data that the engine adds to a template: names, labels, annotations, the
	// owner reference, the search domain.
	podOverhead = 2 << 10
)

var stringSize, envVarSize = int(reflect.TypeFor[string]().Size()), int(reflect.TypeFor[corev1.EnvVar]().Size())

// podSizes computes the size of each role's pods after their variables have been replaced.
func (c *conversion) podSizes() {
	for i := range c.job.Roles {
		if role := &c.job.Roles[i]; len(role.Template.Spec.Containers) > 0 {
			role.PodSize = c.podSize(i)
		}
	}
}

// sizes checks the size of each pod and of all pods together, unless the job has other errors. Without these bounds, a
// few lines of a manifest could take gigabytes in the API server, in etcd and in the operator.
func (v *validator) sizes() {
	if len(v.errs) > 0 {
		return
	}
	total, largest := 0, 0
	for i := range v.job.Roles {
		role := &v.job.Roles[i]
		if role.PodSize > maxPodSize {
			v.invalid(v.specPaths[i].Child("template"), bytesText(role.PodSize), fmt.Sprintf("a pod of this role would take %s with its "+
				"variables replaced%s, and the limit is %s: keep long texts in a ConfigMap or in the image, and use fewer entries",
				bytesText(role.PodSize), v.sizeNote, bytesText(maxPodSize)))
			return
		}
		total += role.PodSize * role.Replicas
		if role.PodSize*role.Replicas > v.job.Roles[largest].PodSize*v.job.Roles[largest].Replicas {
			largest = i
		}
	}
	pods := v.job.Replicas()
	if e := v.job.Elastic; e != nil { // any role may get the additional replicas of a larger job
		pods, total = e.Max, 0
		for i := range v.job.Roles {
			total = max(total, v.job.Roles[i].PodSize*e.Max)
		}
	}
	limit := maxJobSize * min(max(v.limits.MaxReplicas, DefaultMaxReplicas), math.MaxInt32) / DefaultMaxReplicas
	if total > limit {
		role := &v.job.Roles[largest]
		v.invalid(field.NewPath("spec", "replicaSpecs"), bytesText(total), fmt.Sprintf("the %d pods of the job would take %s with their variables "+
			"replaced, and the limit is %s; each of role %q takes %s%s: ask for fewer replicas, or shorten its template and commands",
			pods, bytesText(total), bytesText(limit), role.Type, bytesText(role.PodSize), v.sizeNote))
	}
}

// podSize returns an upper bound of the memory of a role's pod in bytes.
func (c *conversion) podSize(i int) int {
	role := &c.job.Roles[i]
	size := podOverhead + memorySize(reflect.ValueOf(role.Template)) + c.addedEnv[i]
	x, digits := c.expanders[i], len(strconv.Itoa(max(role.Replicas-1, 0)))
	eachText(&role.Template.Spec, func(_ place, s *string) { size += x.growth(*s, digits) })
	list := func(texts []string) int {
		sum := 0
		for _, s := range texts {
			sum += stringSize + len(s) + x.growth(s, digits)
		}
		return sum
	}
	debug := len(role.Template.Spec.Containers) * list(role.Debug.Command)
	return size + max(debug, list(role.Resume.Command)+list(role.Resume.Args))
}

// growth returns the number of bytes by which a text may grow when its variables are replaced, for a rank with the
// given number of digits.
func (x expander) growth(text string, digits int) int {
	parts, ok := x[text]
	if !ok {
		return 0
	}
	n := (len(parts) - 1) * digits
	for _, p := range parts {
		n += len(p)
	}
	return max(n-len(text), 0)
}

// addEnv records that the pods of a role get a variable with a value of length bytes in every container that does not
// set the variable itself.
func (c *conversion) addEnv(role int, name string, length int) {
	if c.addedEnv == nil {
		c.addedEnv = map[int]int{}
	}
	containers := c.job.Roles[role].Template.Spec.Containers
	for i := range containers {
		if !slices.ContainsFunc(containers[i].Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
			c.addedEnv[role] += envVarSize + len(name) + length
		}
	}
}

// memorySize returns the memory in bytes that a value refers to, without the value itself. The value must be a tree.
func memorySize(v reflect.Value) int {
	size := 0
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			return int(v.Type().Elem().Size()) + memorySize(v.Elem())
		}
	case reflect.Slice:
		size = v.Len() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			size += memorySize(v.Index(i))
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			size += int(v.Type().Key().Size()+v.Type().Elem().Size()) + memorySize(entries.Key()) + memorySize(entries.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() { // refers to a time zone, which all times share
			return 0
		}
		for i := range v.NumField() {
			size += memorySize(v.Field(i))
		}
	default: // numbers refer to nothing
	}
	return size
}

// bytesText returns a number of bytes in a readable form.
func bytesText(n int) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
}
