package local

// Base names of the files in pki/.
const (
	adminPair      = "admin"
	apiServerPair  = "apiserver"
	apiClientPair  = "apiserver-kubelet-client" // the API server as a client of the kubelet
	kubeletPair    = "kubelet-client"
	kubeletServing = "kubelet"
	schedulerPair  = "scheduler"
	loopbackPair   = "loopback" // serving certificate for 127.0.0.1: controller manager, scheduler and the archive
	tokenKey       = "service-account"
)

// NodeName is the name of the only node.
const NodeName = "local"

// makeCredentials creates the cluster's certificates and keys that are missing, no longer usable or about to expire,
// and writes its kubeconfigs.
func makeCredentials(d Dir, c *Config) error {
	ca, err := ensureAuthority(d)
	if err != nil {
		return err
	}
	gateway := c.gateway().String()
	for _, id := range []identity{
		{file: adminPair, name: "t9k-local-admin", groups: []string{"system:masters"}},
		{file: apiServerPair, name: "kube-apiserver", hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
			"127.0.0.1", c.apiService().String(), gateway}},
		{file: apiClientPair, name: "kube-apiserver-kubelet-client"},
		{file: kubeletPair, name: "system:node:" + NodeName, groups: []string{"system:nodes"}},
		{file: kubeletServing, name: NodeName, hosts: []string{NodeName, gateway}},
		{file: schedulerPair, name: "system:kube-scheduler"},
		{file: loopbackPair, name: "localhost", hosts: []string{"localhost", "127.0.0.1"}},
	} {
		if err := ca.ensure(id); err != nil {
			return err
		}
	}
	if err := ensureTokenKey(d, tokenKey); err != nil {
		return err
	}
	for path, pair := range map[string]string{
		d.Kubeconfig():                   adminPair,
		d.componentKubeconfig(Kubelet):   kubeletPair,
		d.componentKubeconfig(Scheduler): schedulerPair,
	} {
		if err := writeKubeconfig(d, c, path, pair); err != nil {
			return err
		}
	}
	return nil
}

// componentKubeconfig returns the path of a component's kubeconfig.
func (d Dir) componentKubeconfig(component string) string {
	return d.join("pki", component+".kubeconfig")
}
