// Package kindtest checks the properties that every kind of job must have. Conversion and validation depend only on the
// object, do not modify it, never panic, and produce what the engine relies on. Start reading at Check.
package kindtest

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

const (
	// variations is the number of random variations of each manifest that Check tries. allVariations is the least total
	// number; with few manifests, Check tries more variations of each.
	variations, allVariations = 200, 4000
	// maxMutations is the largest number of mutations in a variation.
	maxMutations = 6
)

// Check checks the properties of a kind on random variations of the manifests that are of this kind. The variations are
// the same in every run. The manifests may be invalid. Check also fails if too few variations are valid, or too few
// invalid.
func Check(t *testing.T, k kinds.Kind, manifests []Manifest) {
	accepted, refused := 0, 0
	all := subjects(t, k, manifests)
	for _, s := range all {
		random := rand.New(rand.NewPCG(1, 2))
		for range max(variations, allVariations/len(all)) {
			bytes := make([]byte, 48)
			for i := range bytes {
				bytes[i] = byte(random.Uint32())
			}
			o := s.vary(bytes)
			if o == nil {
				continue
			}
			if hold(t, k, o) {
				accepted++
			} else {
				refused++
			}
			if t.Failed() {
				t.Fatalf("a variation of %s breaks a promise:\n%s", s.name, asYAML(o))
			}
		}
	}
	if accepted < variations || refused < variations {
		t.Errorf("%d jobs accepted and %d refused: too few to tell much", accepted, refused)
	}
}

// Fuzz checks the properties of several kinds on variations that the fuzzer chooses.
func Fuzz(f *testing.F, all []kinds.Kind, manifests []Manifest) {
	byKind := make([][]subject, len(all))
	for i, k := range all {
		byKind[i] = subjects(f, k, manifests)
		for j := range byKind[i] {
			f.Add(uint8(i), uint16(j), []byte{})
			f.Add(uint8(i), uint16(j), []byte("mutate this job here and there, and see what comes of it"))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, which uint16, bytes []byte) {
		i := int(kind) % len(all)
		s := byKind[i][int(which)%len(byKind[i])]
		if o := s.vary(bytes); o != nil {
			hold(t, all[i], o)
			if t.Failed() {
				t.Logf("the job:\n%s", asYAML(o))
			}
		}
	})
}

// subject is a job whose variations are tested.
type subject struct {
	name  string
	kind  kinds.Kind
	value any
}

// subjects returns the first job of each manifest that can be read and whose first job is of a kind. It fails the test
// if there is none.
func subjects(t testing.TB, k kinds.Kind, manifests []Manifest) []subject {
	var picked []subject
	for _, m := range manifests {
		objects, err := Decode(m.Data)
		if err != nil || objects[0].GetObjectKind().GroupVersionKind().Kind != k.Name {
			continue
		}
		data, err := json.Marshal(objects[0])
		if err != nil {
			t.Fatal(err)
		}
		s := subject{name: m.Name, kind: k}
		if err := json.Unmarshal(data, &s.value); err != nil {
			t.Fatal(err)
		}
		picked = append(picked, s)
	}
	if len(picked) == 0 {
		t.Fatalf("no manifest of kind %s", k.Name)
	}
	return picked
}

// vary returns a copy of the job with 1 to maxMutations mutations, or with none if bytes is empty. It returns nil if
// the result does not fit the Go types.
func (s subject) vary(bytes []byte) kinds.Object {
	value, c := deepCopy(s.value), choices(bytes)
	if len(c) > 0 {
		for range 1 + c.next(maxMutations) {
			value = mutate(value, &c)
		}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	o := s.kind.New()
	if json.Unmarshal(data, o) != nil {
		return nil
	}
	return o
}

// hold checks every property on one object. It returns whether the object is valid.
func hold(t testing.TB, k kinds.Kind, o kinds.Object) bool {
	t.Helper()
	before := o.DeepCopyObject()
	job, errs := k.Convert(o), k.Validate(o, kinds.Limits{})
	if !equality.Semantic.DeepEqual(withoutFuncs(job), withoutFuncs(k.Convert(o))) {
		t.Error("converting twice gives two results")
	}
	if again := k.Validate(o, kinds.Limits{}); len(errs) != len(again) || len(errs) > 0 && errs.ToAggregate().Error() != again.ToAggregate().Error() {
		t.Error("validating twice gives two results")
	}
	for _, err := range errs {
		if err.Detail == "" || !strings.HasPrefix(err.Field, "spec") && !strings.HasPrefix(err.Field, "metadata.") {
			t.Errorf("an error must name a field and say how to mend it: %v", err)
		}
	}
	total(t, job, errs)
	if len(errs) == 0 {
		sane(t, job)
		elastic(t, o, job)
		roundTrip(t, k, o, job)
	}
	if errs := k.ValidateUpdate(o, before.(kinds.Object)); len(errs) > 0 {
		t.Errorf("an update that changes nothing is refused: %v", errs)
	}
	if k.Status(o) == nil {
		t.Error("the object has no status")
	}
	if !equality.Semantic.DeepEqual(o, before) {
		t.Error("the object was modified")
	}
	return len(errs) == 0
}

// total checks that any job is safe to pass to the engine once it has started, also after a pause, and that an invalid
// job fails without pods if it has not started. It builds the first pods that the plans create.
func total(t testing.TB, converted *engine.Job, errs field.ErrorList) {
	t.Helper()
	if len(converted.Roles) == 0 && len(errs) == 0 {
		t.Fatal("the job has no roles, and nothing is wrong with it")
	}
	job := *converted
	if len(errs) > 0 {
		job.Invalid = errs.ToAggregate().Error()
		first := engine.Next(&job, engine.Seen{}, engine.Config{})
		if !job.Deleting && (first.Status.Phase != batch.JobFailed || len(first.Create)+len(first.Pods) > 0) {
			t.Errorf("an invalid job is %s, with %d pods", first.Status.Phase, len(first.Pods))
		}
	}
	inRange(t, &job)
	for _, paused := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
		begun := batch.JobStatus{StartTime: &metav1.Time{}, Conditions: []batch.JobCondition{{Type: batch.JobPausedCondition, Status: paused}}}
		plan := engine.Next(&job, engine.Seen{Status: &begun, Live: true}, engine.Config{})
		if !job.Deleting && plan.Status == nil {
			t.Error("no status is written")
		}
		for _, pod := range plan.Pods[:min(len(plan.Pods), 3)] {
			job.Pod(pod)
		}
	}
}

// inRange checks that a job names no replica and no container that it does not have.
func inRange(t testing.TB, job *engine.Job) {
	t.Helper()
	for _, rule := range slices.Concat(job.Success, job.Failure) {
		for _, m := range rule.Members {
			if m.Rank >= job.Roles[m.Role].Replicas {
				t.Fatalf("rule %s names replica %d of role %d", rule.Text, m.Rank, m.Role)
			}
		}
	}
	for i := range job.Roles {
		if r := &job.Roles[i]; r.Main >= len(r.Template.Spec.Containers) || r.Replicas < 0 {
			t.Fatalf("role %s: main container %d, %d replicas", r.Type, r.Main, r.Replicas)
		}
	}
}

// sane checks the engine's assumptions about a valid job.
func sane(t testing.TB, job *engine.Job) {
	t.Helper()
	if job.Replicas() < 1 || job.Replicas() > kinds.DefaultMaxReplicas {
		t.Errorf("the job has %d replicas", job.Replicas())
	}
	names := map[string]bool{}
	for i := range job.Roles {
		r := &job.Roles[i]
		if r.Main < 0 || r.Main >= len(r.Template.Spec.Containers) {
			t.Errorf("role %s: no main container %d", r.Type, r.Main)
		}
		decides := ""
		if r.MainDecides {
			decides = r.Template.Spec.Containers[r.Main].Name
		}
		if got := kinds.MainContainer(job.Pod(engine.NewPod{Member: engine.Member{Role: i}})); got != decides {
			t.Errorf("role %s: container %q decides by the pod, and %q by the job", r.Type, got, decides)
		}
		if len(r.Debug.Command) == 0 {
			t.Errorf("role %s has no debug command", r.Type)
		}
		for rank := range r.Replicas {
			name := job.PodName(r.Type, rank)
			if names[name] || len(validation.IsDNS1123Label(name)) > 0 {
				t.Errorf("pod name %q is taken or no DNS label", name)
			}
			names[name] = true
		}
		expands(t, r)
		fits(t, job, i)
	}
	for _, rule := range slices.Concat(job.Success, job.Failure) {
		saneRule(t, job, rule)
	}
	if job.Gang != nil && int(job.Gang.MinMember) < 1 {
		t.Errorf("a gang of %d", job.Gang.MinMember)
	}
}

// elastic checks that the expected replicas of an elastic job are distributed among its roles, and that the job can
// grow to its largest size. It also checks that no other job is elastic.
func elastic(t testing.TB, o kinds.Object, job *engine.Job) {
	t.Helper()
	p, ok := o.(*batch.PyTorchTrainingJob)
	if !ok || !on(p.Spec.Elastic) || p.Spec.TorchrunConfig == nil || !on(p.Spec.TorchrunConfig) {
		if job.Elastic != nil {
			t.Error("the job is elastic and does not ask for it")
		}
		return
	}
	e, want := p.Spec.Elastic, *p.Spec.Elastic.MinReplicas
	if e.ExpectedReplicas != nil && *e.ExpectedReplicas != 0 {
		want = *e.ExpectedReplicas
	}
	if job.Replicas() != int(want) || job.Elastic == nil || job.Elastic.Min > int(want) || job.Elastic.Max < int(want) {
		t.Errorf("%d replicas of %d, with the bounds %+v", job.Replicas(), want, job.Elastic)
	}
	if job.Roles[0].Replicas < 1 {
		t.Error("the first role has lost rank 0")
	}
	for i := range job.Roles {
		if name := job.PodName(job.Roles[i].Type, job.Elastic.Max-1); len(validation.IsDNS1123Label(name)) > 0 {
			t.Errorf("the job cannot grow: %q is no DNS label", name)
		}
	}
}

// on reports whether a part of a job is switched on, in either spelling.
func on(part any) bool {
	var s struct{ Enabled, Enable *bool }
	data, err := json.Marshal(part)
	if err != nil || json.Unmarshal(data, &s) != nil {
		return false
	}
	return s.Enabled != nil && *s.Enabled || s.Enabled == nil && s.Enable != nil && *s.Enable
}

func saneRule(t testing.TB, job *engine.Job, rule engine.Rule) {
	t.Helper()
	if !json.Valid([]byte(rule.Text)) || len(rule.Members) == 0 {
		t.Errorf("rule %q is no JSON, or names nobody", rule.Text)
	}
	seen := map[engine.Member]bool{}
	for _, m := range rule.Members {
		if seen[m] || m.Role < 0 || m.Role >= len(job.Roles) || m.Rank < 0 || m.Rank >= job.Roles[m.Role].Replicas {
			t.Errorf("rule %s names %v twice, or names a replica that does not exist", rule.Text, m)
		}
		seen[m] = true
	}
}

// expands checks that completing the pods of a role is deterministic and does not modify the template.
func expands(t testing.TB, r *engine.Role) {
	t.Helper()
	if r.Expand == nil {
		return
	}
	template := r.Template.DeepCopy()
	for _, rank := range []int{0, max(r.Replicas-1, 0)} {
		first, second := expanded(r, rank), expanded(r, rank)
		if !equality.Semantic.DeepEqual(first, second) {
			t.Errorf("role %s: completing rank %d twice gives two pods", r.Type, rank)
		}
	}
	if !equality.Semantic.DeepEqual(template, r.Template) {
		t.Errorf("role %s: the template was modified", r.Type)
	}
}

// fits checks that the last pod of a role does not exceed PodSize in any run mode.
func fits(t testing.TB, job *engine.Job, role int) {
	t.Helper()
	r := &job.Roles[role]
	for _, mode := range []batch.RunModeType{batch.RunImmediate, batch.RunDebug, batch.RunResume} {
		pod := job.Pod(engine.NewPod{Member: engine.Member{Role: role, Rank: max(r.Replicas-1, 0)}, Mode: mode})
		if size := pod.Size(); size > r.PodSize {
			t.Errorf("role %s: a pod has %d bytes in mode %s, and the bound is %d", r.Type, size, mode, r.PodSize)
		}
	}
}

func expanded(r *engine.Role, rank int) *corev1.PodSpec {
	spec := r.Template.Spec.DeepCopy()
	r.Expand(rank, spec)
	return spec
}

// roundTrip checks that an object that is stored and read back is valid, is converted to the same job and does not
// count as changed.
func roundTrip(t testing.TB, k kinds.Kind, o kinds.Object, job *engine.Job) {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	back := k.New()
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	stored := k.Convert(back)
	if errs := k.Validate(back, kinds.Limits{}); len(errs) > 0 || !equality.Semantic.DeepEqual(withoutFuncs(job), withoutFuncs(stored)) {
		t.Errorf("stored and read back, the job is another one (%v)", errs)
	}
	if errs := k.ValidateUpdate(back, o); len(errs) > 0 {
		t.Errorf("stored and read back, the job counts as changed: %v", errs)
	}
}

// withoutFuncs returns a copy of a job without its functions, which cannot be compared.
func withoutFuncs(job *engine.Job) *engine.Job {
	plain := *job
	plain.Roles = slices.Clone(job.Roles)
	for i := range plain.Roles {
		plain.Roles[i].Expand = nil
	}
	return &plain
}

func asYAML(o kinds.Object) string {
	data, err := yaml.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
