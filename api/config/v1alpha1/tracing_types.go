package v1alpha1

// Tracing configures where traces are sent, as in Kubernetes' own configuration files.
type Tracing struct {
	// Endpoint is the address of the collector as HOST:PORT. The collector receives OTLP over gRPC without TLS, so it
	// should run on the node, or in a network that you trust.
	Endpoint string `json:"endpoint"`
	// SamplingRatePerMillion is the number of jobs per million that are traced. The operator and the scheduler trace
	// the same jobs.
	// +optional
	// +default=1000000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	SamplingRatePerMillion *int32 `json:"samplingRatePerMillion,omitempty"`
}
