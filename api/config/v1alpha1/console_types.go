package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConsoleConfigurationKind is the kind of the console's configuration file.
const ConsoleConfigurationKind = "ConsoleConfiguration"

// ConsoleConfiguration is the configuration file of the t9k-console (`--config`). The console reads the file when it
// starts. It does not start if the file has an unknown or a repeated field, or a value that is not allowed.
//
// +kubebuilder:object:root=true
type ConsoleConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Server configures the server of the pages and of the JSON API.
	// +optional
	Server ConsoleServer `json:"server,omitzero"`
	// Health configures the server of /healthz and /readyz.
	// +optional
	Health Health `json:"health,omitzero"`
	// Metrics configures the HTTPS server of /metrics.
	// +optional
	Metrics Metrics `json:"metrics,omitzero"`
	// ClusterName is the name of the cluster, which all pages show. Unset: the pages show no name.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// AccessCacheTime is the time for which the console caches the API server's answers about the identity and the
	// rights of users. It must be more than 0s.
	// +optional
	// +default="10s"
	AccessCacheTime *metav1.Duration `json:"accessCacheTime,omitempty"`
	// SignIn configures the provider with which users sign in. Unset: a proxy in front of the console signs them in.
	// +optional
	SignIn *SignIn `json:"signIn,omitempty"`
	// Archive configures the archive of jobs.
	// +optional
	Archive Archive `json:"archive,omitzero"`
}

// ConsoleServer configures the server of the pages and of the JSON API.
type ConsoleServer struct {
	// BindAddress is the address on which the server listens, as HOST:PORT or :PORT.
	// +optional
	// +default=":8080"
	BindAddress string `json:"bindAddress,omitempty"`
	// CertDir is a directory with the files tls.crt and tls.key, which another program such as cert-manager renews. The
	// console serves a renewed certificate without a restart. Unset: the console serves HTTP, for a proxy that
	// terminates TLS.
	// +optional
	CertDir string `json:"certDir,omitempty"`
	// URLs are the addresses under which browsers reach the console, such as https://console.example.org, without a
	// path. The console refuses requests for other hosts. Unset: it accepts every host. In both cases, it refuses
	// requests from pages of other origins, except navigation such as links. signIn requires at least one address.
	// +optional
	URLs []string `json:"urls,omitempty"`
}

// SignIn configures the OpenID Connect provider with which users sign in. The API server must accept the tokens of the
// provider. The console needs `server.urls`, because the provider redirects users back to one of these addresses.
type SignIn struct {
	// Issuer is the HTTPS address of the provider, such as https://login.example.org.
	Issuer string `json:"issuer"`
	// ClientID is the client ID under which the provider knows the console.
	ClientID string `json:"clientID"`
	// ClientSecretFile is the path of a file with the client secret of the console.
	ClientSecretFile string `json:"clientSecretFile"`
	// CAFile is the path of a file with the certificate authority that signed the provider's certificate. Unset: the
	// certificate authorities that the system trusts.
	// +optional
	CAFile string `json:"caFile,omitempty"`
	// ExtraScopes are scopes that the console requests in addition to openid, profile and email, such as groups.
	// +optional
	ExtraScopes []string `json:"extraScopes,omitempty"`
}

// Archive configures the archive of jobs.
type Archive struct {
	// Address is the path of a file, or the address of a PostgreSQL database such as postgres://t9k@db.example.org/t9k.
	// The environment variable PGPASSWORD may hold the password of the database. Unset: the value of the environment
	// variable T9K_ARCHIVE. If both are unset, there is no archive.
	// +optional
	Address string `json:"address,omitempty"`
	// MaxJobLogSize is the largest total size of the logs that the archive keeps for one job. The archive removes the
	// oldest logs first.
	// +optional
	// +default="4Mi"
	MaxJobLogSize *resource.Quantity `json:"maxJobLogSize,omitempty"`
	// MaxLogSize is the largest total size of the logs that the archive keeps for all jobs. The archive removes the
	// oldest logs first.
	// +optional
	// +default="1Gi"
	MaxLogSize *resource.Quantity `json:"maxLogSize,omitempty"`
}
