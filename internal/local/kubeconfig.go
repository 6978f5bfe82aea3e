package local

import (
	"fmt"
	"os"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig that holds the certificate of the identity kept under file, so that it works
// wherever it is copied to on this machine.
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

// APIURL is where the API server listens on the host.
func (c *Config) APIURL() string { return "https://" + c.loopback(APIServer) }

func (c *Config) loopback(component string) string {
	return "127.0.0.1:" + strconv.Itoa(c.Ports[component])
}
