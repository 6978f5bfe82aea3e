package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TensorBoard runs a TensorBoard server for the logs of training jobs. The operator creates a Deployment and a Service
// named NAME-tensorboard for it.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all,shortName=tb
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Idle",type=string,JSONPath=`.status.conditions[?(@.type=="Idle")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.status.url`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 51 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",optionalOldSelf=true,fieldPath=".metadata",message="NAME-tensorboard is the name of a Service: use at most 51 lower-case letters, digits and '-', and begin with a letter"
type TensorBoard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the TensorBoard shows and how it runs.
	Spec TensorBoardSpec `json:"spec"`
	// Status is the observed state of the TensorBoard.
	// +optional
	Status TensorBoardStatus `json:"status,omitzero"`
}

// TensorBoardList is a list of TensorBoards.
//
// +kubebuilder:object:root=true
type TensorBoardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TensorBoard `json:"items"`
}

// TensorBoardSpec says which logs a TensorBoard shows and how it runs. It needs at least one source of logs, in logDir
// or in trainingLogFilesets.
//
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.trainingLogFilesets) && size(self.trainingLogFilesets) > 0 || has(self.logDir) && (has(self.logDir.pvc) && size(self.logDir.pvc) > 0 || has(self.logDir.s3) || has(self.logDir.http))",optionalOldSelf=true,message="a TensorBoard shows logs: give it a source of logs in logDir"
type TensorBoardSpec struct {
	// TrainingLogFilesets lists sources of logs in the older notation: t9k://pvc/NAME/SUBPATH for a directory of a
	// PersistentVolumeClaim, and t9k://minio/SECRET/BUCKET/SUBPATH for a directory of an object store. Deprecated: use
	// logDir.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^t9k://(pvc/[^/]+|minio/[^/]+/[^/]+)(/.*)?$`
	TrainingLogFilesets []string `json:"trainingLogFilesets,omitempty"`
	// LogDir lists sources of logs.
	// +optional
	LogDir *LogDir `json:"logDir,omitempty"`
	// Image is a container image that contains the program tensorboard.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// Suspend deletes the pod of the TensorBoard and keeps its other objects. Defaults to false. Users set it to stop
	// and resume the TensorBoard, and the operator sets it to true if the TensorBoard has been idle for too long.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// Scheduler chooses the scheduler of the pod. Unset: the cluster's default scheduler.
	// +optional
	Scheduler *SchedulePolicy `json:"scheduler,omitempty"`
	// Resources are the requests and limits of the TensorBoard container. Unset: none.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// SecurityContext is the security context of the pod. Unset: the pod complies with the Pod Security level
	// restricted and runs as user and group 65532, unless the operator's setting tensorBoards.user changes this
	// default. A value replaces the whole default. The containers then still drop all capabilities and cannot gain
	// privileges.
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`
	// ImagePullSecrets lists Secrets of the same namespace with which images are pulled. Unset: those of the
	// ServiceAccount.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// NodeSelector lists labels that the pod's node must have. Unset: any node.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations lists the taints of nodes that the pod tolerates. Unset: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// ServiceAccountName is the name of the ServiceAccount that the pod runs as. Its token is not mounted. Unset: the
	// ServiceAccount default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// LogDir lists sources of logs.
type LogDir struct {
	// PVC lists directories of PersistentVolumeClaims. The pod mounts the volumes read-only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	PVC []PVCSource `json:"pvc,omitempty"`
	// S3 lists directories of an S3 object store, which TensorBoard reads itself.
	// +optional
	S3 *S3Source `json:"s3,omitempty"`
	// HTTP lists files to download once, before TensorBoard starts.
	// +optional
	HTTP *HTTPSource `json:"http,omitempty"`
}

// PVCSource names directories of a PersistentVolumeClaim.
type PVCSource struct {
	// Name of the PersistentVolumeClaim.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// SubPath lists directories of the volume, as relative paths without "..". Unset: the whole volume.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^([^/].*)?$`
	SubPath []string `json:"subPath,omitempty"`
}

// S3Source names directories of an S3 object store.
type S3Source struct {
	// SecretRef names the Secret with the keys of the store: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optional ones
	// such as AWS_REGION and S3_ENDPOINT. A TensorBoard can use only one Secret.
	SecretRef SecretRef `json:"secretRef"`
	// URI lists the directories as s3://BUCKET/PATH.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^s3://[^/]+`
	URI []string `json:"uri"`
}

// SecretRef names a Secret of the same namespace.
type SecretRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// HTTPSource names files to download over HTTP or HTTPS.
type HTTPSource struct {
	// URL lists the addresses of the files. Files of one remote directory form one run.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^https?://[^/]+`
	URL []string `json:"url"`
}

// SchedulePolicy chooses the scheduler of a TensorBoard's pod. Unset: the cluster's default scheduler.
type SchedulePolicy struct {
	// T9kScheduler makes the t9k-scheduler schedule the pod.
	// +optional
	T9kScheduler *T9kScheduler `json:"t9kScheduler,omitempty"`
}

// T9kScheduler names the queue from which the t9k-scheduler schedules the pod of a TensorBoard.
type T9kScheduler struct {
	// Queue is the name of the queue.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Queue string `json:"queue"`
}
