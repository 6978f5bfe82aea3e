package archive

// KubeconfigExtension is the name of the extension of a cluster in a kubeconfig that holds the Address of its archive.
const KubeconfigExtension = "tensorstack.dev/archive"

// Address says where the archive of a cluster is served. Clients have the same credentials as for the API server, a
// client certificate or a bearer token.
type Address struct {
	// Server is an address that begins with https.
	Server string `json:"server"`
	// Authority is the certificate authority of the server, in PEM form; empty for those of the machine.
	Authority []byte `json:"certificate-authority-data,omitempty"`
}
