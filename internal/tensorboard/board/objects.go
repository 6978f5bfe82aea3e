package board

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// Ports of the pod. port receives the requests: the proxy listens on it or, without a proxy, TensorBoard itself.
const (
	port = 6006
	// hiddenPort is TensorBoard's port behind the proxy.
	hiddenPort = 6007
	// ActivityPort is the port at which the proxy reports its Activity.
	ActivityPort = 6008
)

// Subcommands of the operator's program that run in pods of TensorBoards.
const (
	ProxyCommand = "tensorboard-proxy"
	FetchCommand = "tensorboard-fetch"
)

// annotationSpec is the annotation of a Deployment that holds the fingerprint of the spec from which it was created or
// last updated. Suspension does not change the fingerprint.
const annotationSpec = "tensorstack.dev/tensorboard-spec"

// keys are the environment variables that the container gets from the Secret of an object store. The Secret must have
// the first requiredKeys of them; the others are optional.
var keys = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
	"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT", "S3_USE_HTTPS", "S3_VERIFY_SSL",
}

const requiredKeys = 2

// Settings holds the operator's settings that determine the pods of TensorBoards.
type Settings struct {
	// HelperImage is the image of the helper containers, and HelperCommand is the command that runs the operator's
	// program in it.
	HelperImage   string
	HelperCommand []string
	// Proxy adds to the pod a proxy that receives the requests to TensorBoard and records their times.
	Proxy bool
	// User is the ID of the default user and group of TensorBoards. Zero means the user of the image, without
	// restrictions.
	User int64
}

// DefaultUser is the User of an ordinary installation: an unprivileged user, the same as in distroless images.
const DefaultUser = 65532

// Name returns the name of a TensorBoard's Deployment and Service.
func Name(tb *tensorboard.TensorBoard) string { return tb.Name + "-tensorboard" }

// Prefix returns the path below which a TensorBoard serves, without a trailing slash.
func Prefix(tb *tensorboard.TensorBoard) string {
	return "/tensorboard/" + tb.Namespace + "/" + tb.Name
}

// URL returns a TensorBoard's address within the cluster.
func URL(tb *tensorboard.TensorBoard) string {
	return fmt.Sprintf("http://%s.%s.svc%s/", Name(tb), tb.Namespace, Prefix(tb))
}

// Port returns the port of a TensorBoard's pod that receives the requests.
func Port() int { return port }

// Suspended reports whether spec.suspend of a TensorBoard is true.
func Suspended(tb *tensorboard.TensorBoard) bool { return tb.Spec.Suspend != nil && *tb.Spec.Suspend }

func meta(tb *tensorboard.TensorBoard) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: Name(tb), Namespace: tb.Namespace, Labels: labels(tb),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(tb, tensorboard.GroupVersion.WithKind("TensorBoard"))},
	}
}

func labels(tb *tensorboard.TensorBoard) map[string]string {
	return map[string]string{tensorboard.LabelTensorBoard: tb.Name}
}

// Service returns the Service of a TensorBoard.
func Service(tb *tensorboard.TensorBoard) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(tb),
		Spec: corev1.ServiceSpec{
			Selector: labels(tb),
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(port)}},
		},
	}
}

// Deployment returns the Deployment of a TensorBoard that shows these logs. It has no replicas if the TensorBoard is
// suspended.
func Deployment(tb *tensorboard.TensorBoard, logs *Logs, o Settings) *appsv1.Deployment {
	replicas, history, grace, no := int32(1), int32(1), int64(5), false
	pod := corev1.PodSpec{
		Containers: []corev1.Container{mainContainer(tb, logs, o)},
		// TensorBoard does not call the API server, so it needs no token. Without service links, it cannot mistake the
		// environment variables of other Services for its own settings.
		AutomountServiceAccountToken: &no,
		EnableServiceLinks:           &no,
		// TensorBoard has no state, so it may be killed early.
		TerminationGracePeriodSeconds: &grace,
		SecurityContext:               securityContext(tb, o),
		ImagePullSecrets:              tb.Spec.ImagePullSecrets,
		NodeSelector:                  tb.Spec.NodeSelector,
		Tolerations:                   tb.Spec.Tolerations,
		ServiceAccountName:            tb.Spec.ServiceAccountName,
	}
	if o.Proxy {
		pod.Containers = append(pod.Containers, proxy(o))
	}
	for i, claim := range logs.Claims {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: claimVolume(i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	if len(logs.Downloads) > 0 {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: fetchedVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		for i := range logs.Downloads {
			pod.InitContainers = append(pod.InitContainers, fetch(i, &logs.Downloads[i], o))
		}
	}
	podLabels := labels(tb)
	if s := tb.Spec.Scheduler; s != nil && s.T9kScheduler != nil {
		pod.SchedulerName = scheduling.SchedulerName
		podLabels[scheduling.LabelQueue] = s.T9kScheduler.Queue
	}
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta(tb),
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels(tb)},
			// Two pods would need twice the resources, and a volume may allow only one.
			Strategy:             appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			RevisionHistoryLimit: &history,
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels}, Spec: pod},
		},
	}
	d.Annotations = map[string]string{annotationSpec: fingerprint(&d.Spec)}
	if Suspended(tb) {
		replicas = 0
	}
	return d
}

// securityContext returns the spec's security context or, by default, one that the Pod Security level restricted
// accepts. The default names a user, because most images with TensorBoard otherwise run as root. If o.User is 0, the
// default is nil, and the image decides.
func securityContext(tb *tensorboard.TensorBoard, o Settings) *corev1.PodSecurityContext {
	if tb.Spec.SecurityContext != nil {
		return tb.Spec.SecurityContext
	}
	if o.User == 0 {
		return nil
	}
	yes := true
	return &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &o.User, RunAsGroup: &o.User, SeccompProfile: runtimeDefault()}
}

func runtimeDefault() *corev1.SeccompProfile {
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

// unprivileged returns the security context that the Pod Security level restricted requires of a container.
func unprivileged() *corev1.SecurityContext {
	no := false
	return &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

// fingerprint returns a hash of a spec that this package has computed. Differs compares fingerprints instead of specs,
// because the API server adds defaults to a spec.
func fingerprint(spec *appsv1.DeploymentSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // every API type can be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Differs reports whether a live Deployment must be updated.
func Differs(live, want *appsv1.Deployment) bool {
	return live.Annotations[annotationSpec] != want.Annotations[annotationSpec] || live.Spec.Replicas == nil || *live.Spec.Replicas != *want.Spec.Replicas
}

// Updated returns a copy of the live Deployment with the wanted spec. It keeps the live selector, which is immutable.
func Updated(live, want *appsv1.Deployment) *appsv1.Deployment {
	next := live.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[annotationSpec] = want.Annotations[annotationSpec]
	next.Spec = *want.Spec.DeepCopy()
	next.Spec.Selector = live.Spec.Selector
	return next
}

// Stopped returns a copy of the live Deployment with zero replicas.
func Stopped(live *appsv1.Deployment) *appsv1.Deployment {
	none := int32(0)
	next := live.DeepCopy()
	next.Spec.Replicas = &none
	return next
}

// mainContainer returns the container that runs TensorBoard.
func mainContainer(tb *tensorboard.TensorBoard, logs *Logs, o Settings) corev1.Container {
	own := port
	if o.Proxy {
		own = hiddenPort
	}
	c := corev1.Container{
		Name: mainName, Image: tb.Spec.Image, Resources: tb.Spec.Resources,
		Command: literal([]string{"tensorboard", logs.Option(), "--bind_all", fmt.Sprintf("--port=%d", own), "--path_prefix=" + Prefix(tb)}),
		Ports:   []corev1.ContainerPort{{Name: "tensorboard", ContainerPort: int32(own)}},
		// The probe goes to TensorBoard's own port and not to the proxy, so it does not count as a request.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: Prefix(tb) + "/", Port: intstr.FromString("tensorboard")}},
			PeriodSeconds: 2, TimeoutSeconds: 5,
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if o.User != 0 || tb.Spec.SecurityContext != nil {
		c.SecurityContext = unprivileged()
	}
	for i, key := range keys {
		if logs.Secret == "" {
			break
		}
		optional := i >= requiredKeys
		c.Env = append(c.Env, corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: logs.Secret}, Key: key, Optional: &optional}}})
	}
	for i, claim := range logs.Claims {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: claimVolume(i), MountPath: claimsDir + "/" + claim, ReadOnly: true})
	}
	if len(logs.Downloads) > 0 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fetchedVolume, MountPath: fetchedDir, ReadOnly: true})
	}
	return c
}

const (
	mainName      = "tensorboard"
	fetchedVolume = "fetched"
)

// claimVolume returns the name of the volume of the claim with index i.
func claimVolume(i int) string { return fmt.Sprintf("claim-%d", i) }

// literal escapes a command so that the kubelet does not expand references in it.
func literal(command []string) []string {
	out := slices.Clone(command)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "$", "$$")
	}
	return out
}

// proxy returns the container that forwards requests to TensorBoard and records their times.
func proxy(o Settings) corev1.Container {
	c := helper("proxy", o, ProxyCommand, fmt.Sprintf("--listen=:%d", port),
		fmt.Sprintf("--to=http://127.0.0.1:%d", hiddenPort), fmt.Sprintf("--activity=:%d", ActivityPort))
	c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: port}, {Name: "activity", ContainerPort: ActivityPort}}
	return c
}

// fetch returns the init container that downloads the files of the download with index i.
func fetch(i int, d *Download, o Settings) corev1.Container {
	c := helper(fmt.Sprintf("fetch-%d", i), o, append([]string{FetchCommand, "--dir=" + d.Dir, "--"}, d.URLs...)...)
	c.VolumeMounts = []corev1.VolumeMount{{Name: fetchedVolume, MountPath: fetchedDir}}
	return c
}

// helper returns a container that runs the operator's own program with args. It sets requests and limits, because the
// quota of a namespace may require them.
func helper(name string, o Settings, args ...string) corev1.Container {
	security, yes := unprivileged(), true
	security.ReadOnlyRootFilesystem, security.SeccompProfile = &yes, runtimeDefault()
	return corev1.Container{
		Name: name, Image: o.HelperImage, Command: literal(append(slices.Clone(o.HelperCommand), args...)),
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		SecurityContext:          security,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}
