package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupVersion is the API group and version of the types of this package.
const GroupVersion = "config.tensorstack.dev/v1alpha1"

// OperatorConfigurationKind is the kind of the operator's configuration file.
const OperatorConfigurationKind = "OperatorConfiguration"

// OperatorConfiguration is the configuration file of the t9k-operator (`--config`). The operator reads the file when it
// starts. It does not start if the file has an unknown or a repeated field, or a value that is not allowed.
//
// +kubebuilder:object:root=true
type OperatorConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// LeaderElection configures whether operators elect a leader.
	// +optional
	LeaderElection LeaderElection `json:"leaderElection,omitzero"`
	// Health configures the server of /healthz and /readyz.
	// +optional
	Health Health `json:"health,omitzero"`
	// Metrics configures the HTTPS server of /metrics.
	// +optional
	Metrics Metrics `json:"metrics,omitzero"`
	// Webhook configures the server of the admission webhooks.
	// +optional
	Webhook Webhook `json:"webhook,omitzero"`
	// QueuesFile is the path of a YAML file with queues. The operator creates the queues that do not exist, and does
	// not change existing ones. Unset: the operator creates only the queue default.
	// +optional
	QueuesFile string `json:"queuesFile,omitempty"`
	// Jobs configures the controllers of jobs.
	// +optional
	Jobs Jobs `json:"jobs,omitzero"`
	// TensorBoards configures the controller of TensorBoards.
	// +optional
	TensorBoards TensorBoards `json:"tensorBoards,omitzero"`
	// Tracing says where the operator sends traces of how jobs start. Unset: the operator sends no traces.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`
}

// LeaderElection configures whether operators elect a leader.
type LeaderElection struct {
	// Enabled makes the operators elect a leader. Only the leader runs the controllers, and all operators serve the
	// webhooks. If it is false, only one operator may run at a time.
	// +optional
	// +default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// Health configures the server of /healthz and /readyz.
type Health struct {
	// BindAddress is the address on which the server listens, as HOST:PORT or :PORT. "0" disables the server.
	// +optional
	// +default=":8081"
	BindAddress string `json:"bindAddress,omitempty"`
}

// Metrics configures the HTTPS server of /metrics.
type Metrics struct {
	// BindAddress is the address on which the server listens, as HOST:PORT or :PORT. The server answers users who may
	// get the path /metrics. "0" disables the server.
	// +optional
	// +default=":8443"
	BindAddress string `json:"bindAddress,omitempty"`
}

// Webhook configures the server of the admission webhooks.
type Webhook struct {
	// BindAddress is the address on which the server listens, as HOST:PORT or :PORT. "0" disables the webhooks.
	// +optional
	// +default=":9443"
	BindAddress string `json:"bindAddress,omitempty"`
	// CertDir is a directory with the files tls.crt and tls.key, which another program such as cert-manager renews.
	// Unset: the operator creates and renews its own certificate.
	// +optional
	CertDir string `json:"certDir,omitempty"`
}

// Jobs configures the controllers of jobs.
type Jobs struct {
	// ClusterDomain is the DNS domain of the cluster. Unset: the domain in the search list of the operator's
	// /etc/resolv.conf or, if the list has none, cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// MaxReplicas is the largest number of replicas of one job. The total size of a job's pods is limited too, to 256
	// MiB. If maxReplicas is more than 10000, that limit grows in proportion.
	// +optional
	// +default=10000
	// +kubebuilder:validation:Minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// MaxListedReplicas is the largest number of replicas that a job's status lists one by one. The status summarizes
	// further replicas.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=1
	MaxListedReplicas *int32 `json:"maxListedReplicas,omitempty"`
	// ForceDeleteAfter is the time from the end of a deleted pod's grace period until the operator deletes the pod by
	// force and replaces it, if the pod's node is gone or not ready. Pods on ready nodes are never deleted by force. It
	// must be more than 0s.
	// +optional
	// +default="5m0s"
	ForceDeleteAfter *metav1.Duration `json:"forceDeleteAfter,omitempty"`
	// RestartBackoff is the delay before the second consecutive restart of a replica. The first restart has no delay,
	// and the delay doubles with each further restart. It must be more than 0s.
	// +optional
	// +default="10s"
	RestartBackoff *metav1.Duration `json:"restartBackoff,omitempty"`
	// MaxRestartBackoff is the longest delay between restarts. It must be at least restartBackoff.
	// +optional
	// +default="5m0s"
	MaxRestartBackoff *metav1.Duration `json:"maxRestartBackoff,omitempty"`
	// LogReadTime is the minimum time for which the operator keeps the pod of a replica, after it has seen the end of
	// the pod, before it deletes the pod for a restart or for clean-up. It is also the minimum TTL of a job. During
	// this time, the console can read the log for its archive. Actions that users request, such as a pause, do not
	// wait. 0s: the operator does not wait.
	// +optional
	// +default="0s"
	LogReadTime *metav1.Duration `json:"logReadTime,omitempty"`
}

// TensorBoards configures the controller of TensorBoards.
type TensorBoards struct {
	// IdleAfter is the time without a request after which a TensorBoard counts as idle. The operator reads the time of
	// the last request from port 6008 of the pods, so network policies must allow this. 0s: TensorBoards never count as
	// idle and are never suspended.
	// +optional
	// +default="1h0m0s"
	IdleAfter *metav1.Duration `json:"idleAfter,omitempty"`
	// SuspendAfter is the time for which a TensorBoard must be idle before the operator suspends it. 0s: the operator
	// suspends none.
	// +optional
	// +default="24h0m0s"
	SuspendAfter *metav1.Duration `json:"suspendAfter,omitempty"`
	// User is the ID of the user and of the group that TensorBoards run as, unless their securityContext says
	// otherwise. 0: the user and group of their images, without the restrictions of the Pod Security level restricted.
	// +optional
	// +default=65532
	// +kubebuilder:validation:Minimum=0
	User *int64 `json:"user,omitempty"`
	// HelperImage is the image of the helpers in the pods of TensorBoards. It must contain the operator's program.
	// Unset: the image of the operator's own pod.
	// +optional
	HelperImage string `json:"helperImage,omitempty"`
	// HelperCommand is the command that runs the operator's program in the helpers' image. Unset: `/t9k-operator`.
	// +optional
	HelperCommand []string `json:"helperCommand,omitempty"`
}
