package sim

import (
	"encoding/binary"
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// sum returns a hash of the state: the objects of the API server and their true history, what the caches show and will
// show, and everything that the operator keeps, including private fields. It leaves out the numbers of calls, passes
// and operators, and rate limits, which an exploration is too short to reach.
func (p *exploredWorld) sum() uint64 {
	w, o := p.w, p.leader
	pods, late := map[string]any{}, map[string]any{}
	for name, log := range w.podLog {
		pods[name], late[name] = log[len(log)-1], log[o.podPos[name]:]
	}
	for kind, log := range w.objectLog {
		late[kind] = log[o.objectPos[kind]:]
	}
	h := &hasher{versions: map[string][]int{}}
	h.walk(reflect.ValueOf([]any{
		w.obj, w.status, pods, w.objects, w.now, w.past, w.inc, w.creates, w.nextUID, w.lost, w.events, p.faults, p.troubles,
		o.cachedPods, late, o.unhandled, w.jobLog[max(o.jobPos-1, 0):], o.jobPos == 0, o.wake, o.retries.NumRequeues(request), o.live, threshold(strconv.Itoa(o.liveVersion)),
	}), "")
	r := reflect.ValueOf(o.reconciler).Elem()
	h.walk(r.FieldByName("store"), "")
	h.walk(r.FieldByName("fence"), "")
	return h.sum()
}

// threshold is a resourceVersion with which the resourceVersions of all objects are compared.
type threshold string

// hasher hashes values of any type.
type hasher struct {
	tokens []token
	// versions holds the resourceVersions of each object, by its name. thresholds holds the resourceVersions with which
	// those of all objects are compared.
	versions   map[string][]int
	thresholds []int
}

// token is a number or, if of is not empty, a resourceVersion of the object with that name. A space stands for a
// threshold.
type token struct {
	of string
	n  uint64
}

// sum hashes the tokens. Of a resourceVersion, it hashes only the rank among the versions of the same object and among
// the thresholds, because resourceVersions are compared with no others.
func (h *hasher) sum() uint64 {
	for of := range h.versions {
		slices.Sort(h.versions[of])
		h.versions[of] = slices.Compact(h.versions[of])
	}
	slices.Sort(h.thresholds)
	h.thresholds = slices.Compact(h.thresholds)
	data := make([]byte, 0, 16*len(h.tokens))
	for _, t := range h.tokens {
		if t.of != "" {
			own, _ := slices.BinarySearch(h.versions[t.of], int(t.n))
			among, exact := slices.BinarySearch(h.thresholds, int(t.n))
			t.n = uint64(own)<<32 | uint64(among)<<1
			if exact {
				t.n |= 1
			}
		}
		data = binary.LittleEndian.AppendUint64(data, t.n)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(data)
	return sum.Sum64()
}

func (h *hasher) number(n uint64) { h.tokens = append(h.tokens, token{n: n}) }

// text hashes a string by FNV-1a.
func (h *hasher) text(s string) {
	sum := uint64(14695981039346656037)
	for i := range len(s) {
		sum = (sum ^ uint64(s[i])) * 1099511628211
	}
	h.number(sum)
}

// version records a resourceVersion of an object; of is empty for a threshold.
func (h *hasher) version(of, version string) {
	n, err := strconv.Atoi(version)
	switch {
	case err != nil:
		h.number(0)
		return
	case of == "":
		h.thresholds = append(h.thresholds, n)
		of = " "
	default:
		h.versions[of] = append(h.versions[of], n)
	}
	h.tokens = append(h.tokens, token{of, uint64(n)})
}

func (h *hasher) walk(v reflect.Value, of string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[threshold]() {
			h.version("", v.String())
			return
		}
		h.text(v.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		h.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		h.number(v.Uint())
	case reflect.Bool:
		h.number(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			h.number(0)
			return
		}
		h.number(1)
		h.walk(v.Elem(), of)
	case reflect.Slice, reflect.Array:
		h.number(uint64(v.Len()))
		for i := range v.Len() {
			h.walk(v.Index(i), of)
		}
	case reflect.Map:
		h.entries(v)
	case reflect.Struct:
		h.fields(v)
	case reflect.UnsafePointer: // of an atomic.Pointer to the status that was written last
		if v.UnsafePointer() == nil {
			h.number(0)
			return
		}
		h.walk(reflect.NewAt(reflect.TypeFor[batch.JobStatus](), v.UnsafePointer()).Elem(), of)
	default: // functions and floats do not occur in the state
	}
}

// entries hashes a map in the order of its keys, which are strings unless there is only one entry.
func (h *hasher) entries(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	h.number(uint64(len(keys)))
	for _, k := range keys {
		h.walk(k, "")
		h.walk(v.MapIndex(k), "")
	}
}

// leftOut holds the names of fields that have no effect on what happens next.
var leftOut = map[string]bool{"clock": true, "loc": true, "TypeMeta": true, "ManagedFields": true, "mu": true}

// fieldKind selects how a field is hashed.
type fieldKind int

const (
	_ fieldKind = iota
	// objectVersion is the resourceVersion of the object itself, jobVersion one of the job, and anyVersion one that is
	// compared with the versions of all objects.
	objectVersion
	jobVersion
	anyVersion
)

type field struct {
	index int
	kind  fieldKind
}

// structFields returns the fields of a type that are hashed.
func structFields(t reflect.Type) []field {
	if t == reflect.TypeFor[time.Location]() || t == reflect.TypeFor[worldClock]() || strings.HasSuffix(t.Name(), "JobSpec") {
		return nil // the spec of a job follows from its generation
	}
	var all []field
	for i := range t.NumField() {
		f := field{index: i}
		switch name := t.Field(i).Name; {
		case leftOut[name]:
			continue
		case name == "ResourceVersion" && t == reflect.TypeFor[metav1.ObjectMeta]():
			f.kind = objectVersion
		case name == "seenVersion":
			f.kind = jobVersion
		case name == "since", name == "version" && t.Field(i).Type.Kind() == reflect.String:
			f.kind = anyVersion
		}
		all = append(all, f)
	}
	return all
}

// knownFields holds the results of structFields.
var knownFields sync.Map

func (h *hasher) fields(v reflect.Value) {
	t := v.Type()
	known, ok := knownFields.Load(t)
	if !ok {
		known = structFields(t)
		knownFields.Store(t, known)
	}
	name := ""
	if t == reflect.TypeFor[metav1.ObjectMeta]() {
		name = v.FieldByName("Name").String()
	}
	for _, f := range known.([]field) {
		switch f.kind {
		case objectVersion:
			h.version(name, v.Field(f.index).String())
		case jobVersion:
			h.version(jobName, v.Field(f.index).String())
		case anyVersion:
			h.version("", v.Field(f.index).String())
		default:
			h.walk(v.Field(f.index), name)
		}
	}
}
