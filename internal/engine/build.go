package engine

import (
	"iter"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// build plans the objects to create, and the update of the PodGroup. The PodGroup comes before the first pod, so that
// the scheduler never sees a pod without its group. build plans nothing for a finished or paused job, or while the
// job's success is contested (see Plan.Contested).
func (p *pass) build() {
	if p.finished || p.verdict.over() || p.plan.Contested || p.mode == batch.RunPause {
		return
	}
	if p.Gang != nil {
		p.buildGroup()
	}
	if p.Service != nil && !p.seen.Service {
		p.plan.Create = append(p.plan.Create, p.service())
	}
	for _, r := range p.create {
		attempt := r.attempt
		if r.disrupted {
			attempt++ // the record still refers to the disrupted pod
		}
		p.plan.Pods = append(p.plan.Pods, NewPod{r.Member, p.mode, attempt, r.restarts, r.backoff, p.next.Restarts, p.next.BackoffCount})
	}
}

func (p *pass) buildGroup() {
	want := p.group()
	have := p.seen.Group
	if have == nil {
		p.plan.Create = append(p.plan.Create, want)
		return
	}
	if by := p.RequestedBy; !equality.Semantic.DeepEqual(have.Spec, want.Spec) || by != "" && by != have.Annotations[scheduling.AnnotationRequestedBy] {
		update := have.DeepCopy()
		update.Spec = want.Spec
		if by != "" {
			metav1.SetMetaDataAnnotation(&update.ObjectMeta, scheduling.AnnotationRequestedBy, by)
		}
		p.plan.Update = append(p.plan.Update, update)
	}
}

// meta returns the metadata of an object that the job owns.
func (j *Job) meta(name string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{
		Namespace: j.Namespace,
		Name:      name,
		Labels:    j.labels(),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: j.APIVersion, Kind: j.Kind, Name: j.Name, UID: j.UID, Controller: &yes, BlockOwnerDeletion: &yes,
		}},
	}
}

func (j *Job) labels() map[string]string {
	return map[string]string{
		batch.LabelJobName:   j.Name,
		batch.LabelJobKind:   j.Kind,
		batch.LabelComponent: strings.ToLower(j.Kind),
	}
}

// selector returns the label selector of the job's pods in its text form.
func (j *Job) selector() string {
	return batch.LabelJobName + "=" + j.Name + "," + batch.LabelJobKind + "=" + j.Kind
}

// service returns the job's headless Service. It publishes addresses of pods that are not ready, because replicas
// resolve each other's names while they start.
func (j *Job) service() *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: j.meta(j.Name),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 map[string]string{batch.LabelJobName: j.Name, batch.LabelJobKind: j.Kind},
			Ports:                    j.Service.Ports,
			PublishNotReadyAddresses: true,
		},
	}
}

// group returns the PodGroup of the replicas that have pods or will get them. Pods that have ended count as long as
// they exist, because the scheduler counts them too. A replica that has ended for good and has no pod, for example
// after a pause, does not count, because the scheduler would wait for it forever.
func (p *pass) group() *scheduling.PodGroup {
	g := &scheduling.PodGroup{
		TypeMeta:   metav1.TypeMeta{APIVersion: scheduling.GroupVersion.String(), Kind: "PodGroup"},
		ObjectMeta: p.meta(p.Name),
		Spec:       scheduling.PodGroupSpec{MinMember: p.Gang.MinMember, Queue: p.Gang.Queue, Priority: p.Gang.Priority},
	}
	if p.RequestedBy != "" {
		g.Annotations = map[string]string{scheduling.AnnotationRequestedBy: p.RequestedBy}
	}
	for i := range p.Roles {
		gone := int32(0)
		for k := range p.roles[i] {
			if r := &p.roles[i][k]; r.pod == nil && r.final() {
				gone++
			}
		}
		g.Spec.MinMember = max(1, g.Spec.MinMember-gone)
		if p.Gang.ByRole {
			g.Spec.Roles = append(g.Spec.Roles, scheduling.PodGroupRole{Name: p.Roles[i].Type, MinMember: int32(p.Roles[i].Replicas) - gone})
		}
	}
	return g
}

// Objects yields all objects that the plan creates, in order. It builds each pod only when the loop asks for it.
func (p *Plan) Objects(job *Job) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for _, o := range p.Create {
			if !yield(o) {
				return
			}
		}
		for _, n := range p.Pods {
			if !yield(job.Pod(n)) {
				return
			}
		}
	}
}

// Pod builds a pod of the job. It drops the reserved labels and annotations of the template (see Reserved).
func (j *Job) Pod(n NewPod) *corev1.Pod {
	role := &j.Roles[n.Role]
	name := j.PodName(role.Type, n.Rank)
	t := role.Template
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: j.meta(name),
		Spec:       *t.Spec.DeepCopy(),
	}
	pod.Finalizers = t.Finalizers
	pod.Labels = merge(unreserved(t.Labels), j.RoleLabels(role.Type), map[string]string{
		batch.LabelReplicaRank:    strconv.Itoa(n.Rank),
		batch.LabelReplicaAttempt: strconv.Itoa(int(n.Attempt)),
	})
	pod.Annotations = merge(unreserved(t.Annotations), map[string]string{
		batch.AnnotationRunMode:  string(n.Mode),
		batch.AnnotationRestarts: strconv.Itoa(int(n.Restarts)),
		batch.AnnotationBackoff:  strconv.Itoa(int(n.Backoff)),
	})
	for annotation, count := range map[string]int32{batch.AnnotationJobRestarts: n.JobRestarts, batch.AnnotationBackoffCount: n.BackoffCount} {
		if count > 0 {
			pod.Annotations[annotation] = strconv.Itoa(int(count))
		}
	}
	s := &pod.Spec
	s.RestartPolicy = corev1.RestartPolicyNever
	s.Hostname = name
	if j.Service != nil {
		s.Subdomain = j.Name
		if s.DNSConfig == nil {
			s.DNSConfig = &corev1.PodDNSConfig{}
		}
		s.DNSConfig.Searches = append(s.DNSConfig.Searches, j.Name+"."+j.Namespace+".svc."+j.ClusterDomain)
	}
	j.schedule(s)
	switch n.Mode {
	case batch.RunDebug:
		role.Debug.apply(s)
	case batch.RunResume:
		role.Resume.apply(s, role.Main)
	}
	if role.Expand != nil {
		role.Expand(n.Rank, s)
	}
	return pod
}

// apply changes the spec of a pod for debug mode. It replaces the commands of all containers, and removes their args
// and probes. The probes would fail against another command.
func (d *Debug) apply(s *corev1.PodSpec) {
	if d.SkipInitContainers {
		s.InitContainers = nil
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		c.Command, c.Args = append([]string(nil), d.Command...), nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil
	}
}

func (r *Resume) apply(s *corev1.PodSpec, main int) {
	if r.SkipInitContainers {
		s.InitContainers = nil
	}
	if r.Command != nil {
		s.Containers[main].Command = append([]string(nil), r.Command...)
	}
	if r.Args != nil {
		s.Containers[main].Args = append([]string(nil), r.Args...)
	}
}

// merge returns the union of the maps; later maps override earlier ones.
func merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
