package plane

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig for one user of one cluster.
func WriteKubeconfig(path string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["test"], c.AuthInfos["test"] = cluster, user
	c.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	data, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
