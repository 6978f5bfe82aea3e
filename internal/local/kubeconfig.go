package local

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tensorstack.dev/batch/internal/archive"
)

// writeKubeconfig writes a kubeconfig to path, with the certificate and key whose files have the base name file. It
// embeds both, so that a copy of the kubeconfig works anywhere on this machine. If the cluster has a console, the
// kubeconfig also contains the address of the console's archive.
func writeKubeconfig(d Dir, c *Config, path, file string) error {
	ca, err := os.ReadFile(d.certFile("ca"))
	if err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	cert, err := os.ReadFile(d.certFile(file))
	if err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	key, err := os.ReadFile(d.keyFile(file))
	if err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	name := "t9k-local-" + d.Name()
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.APIURL(), CertificateAuthorityData: ca}
	if c.has(Console) {
		address, err := json.Marshal(archive.Address{Server: "https://" + c.loopback(archiveServer), Authority: ca})
		if err != nil {
			return fmt.Errorf("writing a kubeconfig: %w", err)
		}
		config.Clusters[name].Extensions = map[string]runtime.Object{archive.KubeconfigExtension: &runtime.Unknown{Raw: address, ContentType: runtime.ContentTypeJSON}}
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	if err := writeFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}

// APIURL returns the URL of the API server on this machine.
func (c *Config) APIURL() string { return "https://" + c.loopback(APIServer) }

// loopback returns the address 127.0.0.1:PORT of the owner of a port in Ports.
func (c *Config) loopback(component string) string {
	return "127.0.0.1:" + strconv.Itoa(c.Ports[component])
}
