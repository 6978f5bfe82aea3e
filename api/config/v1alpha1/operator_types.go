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
	// QueuesFile is the path of a YAML file with queues that the operator creates if they do not exist.
	// +optional
	QueuesFile string `json:"queuesFile,omitempty"`
	// Jobs configures the controllers of jobs.
	// +optional
	Jobs Jobs `json:"jobs,omitzero"`
	// TensorBoards configures the controller of TensorBoards.
	// +optional
	TensorBoards TensorBoards `json:"tensorBoards,omitzero"`
	// Tracing says where the operator sends traces of the starts of jobs. Unset: nowhere.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`
}

// LeaderElection configures whether operators elect a leader.
type LeaderElection struct {
	// Enabled makes several operators elect a leader. Only the leader runs the controllers; all serve the webhooks. If
	// false, only one operator may run.
	// +optional
	// +default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// Health configures the server of /healthz and /readyz.
type Health struct {
	// BindAddress is the address that the server listens at, as HOST:PORT or :PORT. "0" disables the server.
	// +optional
	// +default=":8081"
	BindAddress string `json:"bindAddress,omitempty"`
}

// Metrics configures the HTTPS server of /metrics.
type Metrics struct {
	// BindAddress is the address of /metrics, which is served over HTTPS to users who may get the path. "0" disables
	// the server.
	// +optional
	// +default=":8443"
	BindAddress string `json:"bindAddress,omitempty"`
}

// Webhook configures the server of the admission webhooks.
type Webhook struct {
	// BindAddress is the address that the server listens at. "0" disables the server.
	// +optional
	// +default=":9443"
	BindAddress string `json:"bindAddress,omitempty"`
	// CertDir is a directory with tls.crt and tls.key that another program renews, such as cert-manager. Unset: the
	// operator creates and renews its own certificate.
	// +optional
	CertDir string `json:"certDir,omitempty"`
}

// Jobs configures the controllers of jobs.
type Jobs struct {
	// ClusterDomain is the DNS domain of the cluster. Unset: detected, else cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// MaxReplicas is the largest number of replicas of one job. Above 10000, the limit on the total size of a job's
	// pods grows in proportion.
	// +optional
	// +default=10000
	// +kubebuilder:validation:Minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// MaxListedReplicas is the number of replicas that a job's status lists one by one.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=1
	MaxListedReplicas *int32 `json:"maxListedReplicas,omitempty"`
	// ForceDeleteAfter is the time after which a pod that is being deleted on a node that is gone or not ready is
	// deleted by force and replaced. Pods on ready nodes are never deleted by force.
	// +optional
	// +default="5m0s"
	ForceDeleteAfter *metav1.Duration `json:"forceDeleteAfter,omitempty"`
	// RestartBackoff is the delay before the second consecutive restart. It doubles with each further one.
	// +optional
	// +default="10s"
	RestartBackoff *metav1.Duration `json:"restartBackoff,omitempty"`
	// MaxRestartBackoff is the longest delay before a restart.
	// +optional
	// +default="5m0s"
	MaxRestartBackoff *metav1.Duration `json:"maxRestartBackoff,omitempty"`
	// LogReadTime is the minimum time for which the operator keeps the pod of a finished replica before it deletes the
	// pod for a restart, for clean-up, or with its job at the end of the TTL. In this time, the console can read the
	// log for its archive. Actions that users request, such as a pause, do not wait.
	// +optional
	// +default="0s"
	LogReadTime *metav1.Duration `json:"logReadTime,omitempty"`
}

// TensorBoards configures the controller of TensorBoards.
type TensorBoards struct {
	// IdleAfter is the time without a request after which a TensorBoard is idle. 0s turns this off. The operator must
	// reach the pods at port 6008.
	// +optional
	// +default="1h0m0s"
	IdleAfter *metav1.Duration `json:"idleAfter,omitempty"`
	// SuspendAfter is the time for which a TensorBoard is idle before the operator suspends it. 0s turns this off.
	// +optional
	// +default="24h0m0s"
	SuspendAfter *metav1.Duration `json:"suspendAfter,omitempty"`
	// User is the user and group that TensorBoards run as by default. 0: those of their images, without the
	// restrictions of Pod Security level restricted.
	// +optional
	// +default=65532
	// +kubebuilder:validation:Minimum=0
	User *int64 `json:"user,omitempty"`
	// HelperImage is an image of the operator for the helpers in the pods of TensorBoards. Unset: the image of the
	// operator's own pod.
	// +optional
	HelperImage string `json:"helperImage,omitempty"`
	// HelperCommand is the command that runs the operator's program in that image. Unset: `/t9k-operator`.
	// +optional
	HelperCommand []string `json:"helperCommand,omitempty"`
}
