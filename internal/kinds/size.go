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
	// maxPodSize is the largest size of one pod. etcd takes objects of up to 1.5 MiB, and the API server adds to a pod what
	// it keeps for itself.
	maxPodSize = 1 << 20
	// maxJobSize is the largest size of all pods of a job together, where a job has DefaultMaxReplicas at most. A pod is
	// written about five times in its life, and etcd holds 2 GiB unless it is told otherwise. An installation that allows
	// more replicas allows as much more.
	maxJobSize = 256 << 20
	// podOverhead is what the engine adds to a template: names, labels, annotations, the owner, the search domain.
	podOverhead = 2 << 10
)

var stringSize, envVarSize = int(reflect.TypeFor[string]().Size()), int(reflect.TypeFor[corev1.EnvVar]().Size())

// podSizes notes the size of each role's pods, with their variables replaced.
func (c *conversion) podSizes() {
	for i := range c.job.Roles {
		if role := &c.job.Roles[i]; len(role.Template.Spec.Containers) > 0 {
			role.PodSize = c.podSize(i)
		}
	}
}

// sizes bounds the size of each pod, and of all of them, where nothing else is wrong. A few lines of a manifest could ask for
// gigabytes otherwise: of the API server, of etcd, and of whoever builds the pods.
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
	if e := v.job.Elastic; e != nil { // any role may get the replicas that are yet to come
		pods, total = e.Max, 0
		for i := range v.job.Roles {
			total = max(total, v.job.Roles[i].PodSize*e.Max)
		}
	}
	limit := maxJobSize * min(max(v.limits.MaxReplicas, DefaultMaxReplicas), math.MaxInt32) / DefaultMaxReplicas
	if total > limit {
		role := &v.job.Roles[largest]
		v.invalid(field.NewPath("spec", "replicaSpecs"), bytesText(total), fmt.Sprintf("the %d pods of the job would take %s with their variables "+
			"replaced, and the limit is %s; each of role %q takes %s%s: ask for fewer replicas, or shorten what its template and commands say",
			pods, bytesText(total), bytesText(limit), role.Type, bytesText(role.PodSize), v.sizeNote))
	}
}

// podSize is an upper bound of the memory that a pod of a role takes, in bytes.
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

// growth is by how much a text becomes longer when the variables in it are replaced, for a rank of so many digits.
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

// addEnv notes that the pods of a role get a variable of so many bytes in every container that does not set it itself.
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

// memorySize is the memory that a value refers to, in bytes, without the value itself. The value is a tree.
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
		if v.Type() == reflect.TypeFor[time.Time]() { // refers to a time zone, which all share
			return 0
		}
		for i := range v.NumField() {
			size += memorySize(v.Field(i))
		}
	default: // numbers refer to nothing
	}
	return size
}

// bytesText is a number of bytes for people.
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
