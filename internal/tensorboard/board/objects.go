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

// Ports of the pod. Requests come to port: that of the activity proxy or, where none is wanted, of TensorBoard itself.
const (
	port = 6006
	// hiddenPort is TensorBoard's own behind the proxy.
	hiddenPort = 6007
	// ActivityPort is where the proxy tells when the last request came.
	ActivityPort = 6008
)

// Subcommands of the operator's program that run in the pods of TensorBoards.
const (
	ProxyCommand = "tensorboard-proxy"
	FetchCommand = "tensorboard-fetch"
)

// annotationSpec, on a Deployment, identifies what it was made from.
const annotationSpec = "tensorstack.dev/tensorboard-spec"

// keys are the variables of an object store that are taken from its Secret. The first two must be there.
var keys = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
	"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT", "S3_USE_HTTPS", "S3_VERIFY_SSL",
}

const requiredKeys = 2

// Settings are what an installation decides.
type Settings struct {
	// HelperImage and HelperCommand run the operator's own program.
	HelperImage   string
	HelperCommand []string
	// Proxy puts a proxy before TensorBoard that notes when requests come.
	Proxy bool
	// User is the user and group that TensorBoards run as by default. Zero: those of their images, unrestricted.
	User int64
}

// DefaultUser is the User of an ordinary installation: one that owns nothing, as in distroless images.
const DefaultUser = 65532

// Name is the name of the Deployment and the Service of a TensorBoard.
func Name(tb *tensorboard.TensorBoard) string { return tb.Name + "-tensorboard" }

// Prefix is the path below which a TensorBoard serves, without a slash at its end.
func Prefix(tb *tensorboard.TensorBoard) string {
	return "/tensorboard/" + tb.Namespace + "/" + tb.Name
}

// URL is a TensorBoard's address within the cluster.
func URL(tb *tensorboard.TensorBoard) string {
	return fmt.Sprintf("http://%s.%s.svc%s/", Name(tb), tb.Namespace, Prefix(tb))
}

// Port is the one of a TensorBoard's pod that takes requests.
func Port() int { return port }

// Suspended tells whether a TensorBoard is to be stopped.
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

// Service is the one by which others reach a TensorBoard.
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

// Deployment is the one that runs a TensorBoard.
func Deployment(tb *tensorboard.TensorBoard, logs *Logs, o Settings) *appsv1.Deployment {
	replicas, history, grace, no := int32(1), int32(1), int64(5), false
	pod := corev1.PodSpec{
		Containers: []corev1.Container{mainContainer(tb, logs, o)},
		// It needs neither the API server nor the variables of other Services, whose names may begin like its own.
		AutomountServiceAccountToken: &no,
		EnableServiceLinks:           &no,
		// It holds no state: nothing is lost by an early end.
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
			// Two at a time would need twice the room, and a volume may be for one alone.
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

// securityContext is the one that the spec gives or, by default, what Pod Security's level restricted asks of a pod. A user is
// named since most images with tensorboard would run as root.
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

// unprivileged is what restricted asks of each container.
func unprivileged() *corev1.SecurityContext {
	no := false
	return &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

// fingerprint identifies a spec, whatever the API server adds to it.
func fingerprint(spec *appsv1.DeploymentSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // an API type always has a JSON form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Differs tells whether a live Deployment is not as it should be.
func Differs(live, want *appsv1.Deployment) bool {
	return live.Annotations[annotationSpec] != want.Annotations[annotationSpec] || live.Spec.Replicas == nil || *live.Spec.Replicas != *want.Spec.Replicas
}

// Updated is the live Deployment with the spec that it should have. Its selector cannot change, and never needs to.
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

// Stopped is the live Deployment without pods.
func Stopped(live *appsv1.Deployment) *appsv1.Deployment {
	none := int32(0)
	next := live.DeepCopy()
	next.Spec.Replicas = &none
	return next
}

func mainContainer(tb *tensorboard.TensorBoard, logs *Logs, o Settings) corev1.Container {
	own := port
	if o.Proxy {
		own = hiddenPort
	}
	c := corev1.Container{
		Name: mainName, Image: tb.Spec.Image, Resources: tb.Spec.Resources,
		Command: literal([]string{"tensorboard", logs.Option(), "--bind_all", fmt.Sprintf("--port=%d", own), "--path_prefix=" + Prefix(tb)}),
		Ports:   []corev1.ContainerPort{{Name: "tensorboard", ContainerPort: int32(own)}},
		// Past the proxy, for a probe is no request that keeps it from being idle.
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

func claimVolume(i int) string { return fmt.Sprintf("claim-%d", i) }

// literal keeps the kubelet from expanding references in what people wrote.
func literal(command []string) []string {
	out := slices.Clone(command)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "$", "$$")
	}
	return out
}

// proxy is the container that passes requests on and notes when they come.
func proxy(o Settings) corev1.Container {
	c := helper("proxy", o, ProxyCommand, fmt.Sprintf("--listen=:%d", port),
		fmt.Sprintf("--to=http://127.0.0.1:%d", hiddenPort), fmt.Sprintf("--activity=:%d", ActivityPort))
	c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: port}, {Name: "activity", ContainerPort: ActivityPort}}
	return c
}

// fetch is the init container that gets the files of one source.
func fetch(i int, d *Download, o Settings) corev1.Container {
	c := helper(fmt.Sprintf("fetch-%d", i), o, append([]string{FetchCommand, "--dir=" + d.Dir, "--"}, d.URLs...)...)
	c.VolumeMounts = []corev1.VolumeMount{{Name: fetchedVolume, MountPath: fetchedDir}}
	return c
}

// helper is a container of the operator's own program. It has limits, for namespaces with a quota ask for them.
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
