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
	// ClusterName is the name of the cluster on all pages.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// AccessCacheTime is the time for which the console keeps what it has asked the API server about users and their
	// rights.
	// +optional
	// +default="10s"
	AccessCacheTime *metav1.Duration `json:"accessCacheTime,omitempty"`
	// SignIn says with which provider users sign in. Unset: a proxy before the console signs them in.
	// +optional
	SignIn *SignIn `json:"signIn,omitempty"`
	// Archive configures the archive of jobs.
	// +optional
	Archive Archive `json:"archive,omitzero"`
}

// ConsoleServer configures the server of the pages and of the JSON API.
type ConsoleServer struct {
	// BindAddress is the address that the server listens at, as HOST:PORT or :PORT.
	// +optional
	// +default=":8080"
	BindAddress string `json:"bindAddress,omitempty"`
	// CertDir is a directory with tls.crt and tls.key that another program renews, such as cert-manager. Unset: the
	// server speaks HTTP, for a proxy that terminates TLS.
	// +optional
	CertDir string `json:"certDir,omitempty"`
	// URLs are the addresses under which browsers reach the console, such as https://console.example.org. The console
	// refuses requests for other hosts and of pages with other addresses. Unset: it refuses none.
	// +optional
	URLs []string `json:"urls,omitempty"`
}

// SignIn configures the provider of OpenID Connect with which users sign in. The API server must accept the tokens of
// the provider. The console needs `server.urls`, because the provider redirects users back to it.
type SignIn struct {
	// Issuer is the address of the provider, such as https://login.example.org.
	Issuer string `json:"issuer"`
	// ClientID is the ID of the console at the provider.
	ClientID string `json:"clientID"`
	// ClientSecretFile is a file with the secret of the console at the provider.
	ClientSecretFile string `json:"clientSecretFile"`
	// CAFile is a file with the certificate authority of the provider. Unset: those that the system trusts.
	// +optional
	CAFile string `json:"caFile,omitempty"`
	// ExtraScopes are scopes to ask for in addition to openid, profile and email, such as groups.
	// +optional
	ExtraScopes []string `json:"extraScopes,omitempty"`
}

// Archive configures the archive of jobs.
type Archive struct {
	// Address is the path of a file, or the address of a PostgreSQL database such as postgres://t9k@db.example.org/t9k,
	// whose password the environment variable PGPASSWORD may hold. Unset: the value of the environment variable
	// T9K_ARCHIVE. There is no archive if both are unset.
	// +optional
	Address string `json:"address,omitempty"`
	// MaxJobLogSize is the largest size of the logs that the archive keeps of one job. The oldest are removed first.
	// +optional
	// +default="4Mi"
	MaxJobLogSize *resource.Quantity `json:"maxJobLogSize,omitempty"`
	// MaxLogSize is the largest size of all logs that the archive keeps. The oldest go first.
	// +optional
	// +default="1Gi"
	MaxLogSize *resource.Quantity `json:"maxLogSize,omitempty"`
}
