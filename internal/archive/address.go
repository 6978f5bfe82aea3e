package archive

// KubeconfigExtension is the name of the extension of a cluster in a kubeconfig that holds the Address of its archive.
const KubeconfigExtension = "tensorstack.dev/archive"

// Address is the address at which a cluster's archive is served. Clients use the same credentials as for the API
// server: a client certificate or a bearer token.
type Address struct {
	// Server is a URL that begins with https.
	Server string `json:"server"`
	// Authority is the certificate authority of the server, in PEM format; if it is empty, the system's certificate
	// authorities are used.
	Authority []byte `json:"certificate-authority-data,omitempty"`
}
