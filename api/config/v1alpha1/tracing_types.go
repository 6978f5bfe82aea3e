package v1alpha1

// Tracing says where traces go, as in Kubernetes' own configuration files.
type Tracing struct {
	// Endpoint is the address of the collector as HOST:PORT. The collector receives OTLP over gRPC without TLS, so it
	// should run on the node, or in a network that you trust.
	Endpoint string `json:"endpoint"`
	// SamplingRatePerMillion is the number of jobs, of a million, that have a trace. The same jobs have one in the
	// operator and in the scheduler.
	// +optional
	// +default=1000000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	SamplingRatePerMillion *int32 `json:"samplingRatePerMillion,omitempty"`
}
