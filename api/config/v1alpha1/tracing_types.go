package v1alpha1

// Tracing configures where a program sends traces. Its fields have the same names as in the configuration files of
// Kubernetes.
type Tracing struct {
	// Endpoint is the address of the collector as HOST:PORT. The program sends OTLP over gRPC without TLS, so the
	// collector should run on the same node or in a network that you trust.
	Endpoint string `json:"endpoint"`
	// SamplingRatePerMillion is the number of jobs per million that are traced. The operator and the scheduler trace
	// the same jobs if both have the same rate.
	// +optional
	// +default=1000000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	SamplingRatePerMillion *int32 `json:"samplingRatePerMillion,omitempty"`
}
