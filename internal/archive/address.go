package archive

// KubeconfigExtension is the name of the extension in a kubeconfig that holds the Address of the archive of a cluster.
const KubeconfigExtension = "tensorstack.dev/archive"

// Address is the address at which a cluster's archive is served. Clients use the same credentials as for the API
// server: a client certificate or a bearer token.
type Address struct {
	// Server is a URL that begins with https.
	Server string `json:"server"`
	// Authority is the certificate authority of the server, in PEM format. If it is empty, clients use the system's
	// certificate authorities.
	Authority []byte `json:"certificate-authority-data,omitempty"`
}
