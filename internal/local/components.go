package local

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"tensorstack.dev/batch/config"
)

// kubeletPort is the kubelet's port on the bridge's address.
const kubeletPort = 10250

// dnsPort is the name server's port on the bridge's address.
const dnsPort = 53

// usableEndpoint is the path of the API server's readiness check without the post-start hooks that the other components
// do not need. These hooks poll once a second and would delay the start. They are not needed because no pod is created
// with a system priority class, and because the components act as the administrator, as the node, which has a separate
// authorizer, or under a role that a later step installs. The controller manager waits for all hooks, because it exits
// if /healthz does not succeed within 10 s of its start.
const usableEndpoint = "/readyz?exclude=poststarthook/rbac/bootstrap-roles&exclude=poststarthook/scheduling/bootstrap-system-priority-classes"

// clusterDomain is the DNS domain of the cluster.
const clusterDomain = "cluster.local"

// newComponents returns the components that c selects, in the order of their dependencies. shutdown drains the kubelet.
func newComponents(d Dir, c *Config, a *apiClient, shutdown *shutdown) []Component {
	all := []Component{
		{Name: Etcd, Args: etcdArgs(d, c), Ready: etcdReady(d), Cause: diskFull(d)},
		{Name: APIServer, Needs: []string{Etcd}, Args: apiServerArgs(d, c), Ready: a.apiServerHealth("/readyz"), Usable: a.apiServerHealth(usableEndpoint)},
		{Name: CRDs, Uses: []string{APIServer}, Run: a.installCRDs},
		{Name: Webhook, Uses: []string{APIServer}, Run: a.installWebhook(c.loopback(Webhook))},
		{Name: LostPods, Uses: []string{APIServer}, Run: a.failLostPods},
		{Name: DNS, Uses: []string{APIServer}, Args: dnsArgs(d, c), Ready: dnsReady(c)},
		{Name: Kubelet, Uses: []string{APIServer}, Needs: kubeletNeeds(c), Args: kubeletArgs(d, c), Env: kubeletEnv(d),
			Ready: both(a.httpsHealth(hostPort(c.gateway(), kubeletPort), "/healthz"), a.nodeReady), Drain: shutdown.drain(a)},
		{Name: ControllerManager, Needs: []string{APIServer}, Args: controllerManagerArgs(d, c),
			Ready: both(a.httpsHealth(c.loopback(ControllerManager), "/healthz"), a.hasDefaultServiceAccount)},
		{Name: Scheduler, Needs: schedulerNeeds(c), Args: schedulerArgs(d, c),
			Ready: a.httpsHealth(c.loopback(Scheduler), "/readyz")},
		{Name: Operator, Needs: operatorNeeds(c), Args: operatorArgs(d), Ready: a.httpHealth(c.loopback(Operator), "/readyz")},
		{Name: Console, Needs: consoleNeeds(c), Args: consoleArgs(d, c), Ready: a.httpHealth(c.loopback(Console), "/readyz")},
	}
	var components []Component
	for _, component := range all {
		if slices.Contains(c.Components, component.Name) {
			component.Args = append(component.Args, c.ExtraArgs[component.Name]...)
			component.Program = c.Programs[component.Name]
			components = append(components, component)
		}
	}
	return components
}

// etcdArgs returns etcd's command-line arguments. etcd listens on a socket in the cluster's directory instead of a
// port: every user of the machine can reach a port, and a client that can write to etcd controls the cluster. No client
// uses the advertised URLs, but etcd requires a port in them.
func etcdArgs(d Dir, c *Config) []string {
	return []string{"etcd",
		"--name=" + d.Name(),
		"--data-dir=" + d.join("etcd"),
		"--unsafe-no-fsync=" + strconv.FormatBool(!c.Fsync),
		"--listen-client-urls=unix://" + d.etcdSocket(),
		"--listen-peer-urls=unix://" + d.join("etcd-peer.sock"),
		"--advertise-client-urls=http://localhost:2379",
		"--initial-advertise-peer-urls=http://localhost:2380",
		"--initial-cluster=" + d.Name() + "=http://localhost:2380",
		"--enable-grpc-gateway=false",
		"--log-level=warn",
	}
}

// apiServerArgs returns the API server's command-line arguments.
func apiServerArgs(d Dir, c *Config) []string {
	args := []string{"kube-apiserver",
		"--etcd-servers=unix://" + d.etcdSocket(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.Ports[APIServer]),
		"--advertise-address=" + c.gateway().String(),
		"--service-cluster-ip-range=" + c.Services.String(),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged",
		"--client-ca-file=" + d.certFile("ca"),
		"--tls-cert-file=" + d.certFile(apiServerPair),
		"--tls-private-key-file=" + d.keyFile(apiServerPair),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + d.keyFile(tokenKey),
		"--service-account-signing-key-file=" + d.keyFile(tokenKey),
		"--kubelet-certificate-authority=" + d.certFile("ca"),
		"--kubelet-client-certificate=" + d.certFile(apiClientPair),
		"--kubelet-client-key=" + d.keyFile(apiClientPair),
		"--kubelet-preferred-address-types=InternalIP",
		"--profiling=false",
	}
	if !slices.Contains(c.Components, DNS) {
		args = append(args, "--endpoint-reconciler-type=none") // without DNS, nothing listens at the advertised address
	}
	if slices.Contains(c.Components, ControllerManager) {
		args = append(args, "--enable-admission-plugins=NodeRestriction")
	} else {
		// The controller manager creates the ServiceAccount that this plugin requires of every pod.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.AuditPolicy != "" {
		args = append(args, "--audit-policy-file="+c.AuditPolicy, "--audit-log-path="+d.AuditLog(), "--audit-log-maxsize=1024")
	}
	return args
}

// clientLimits returns arguments that raise a component's client-side rate limits, in requests per second. The defaults
// are meant for clusters of many nodes.
func clientLimits() []string { return []string{"--kube-api-qps=1000", "--kube-api-burst=2000"} }

// controllerManagerArgs returns the controller manager's command-line arguments.
func controllerManagerArgs(d Dir, c *Config) []string {
	return append([]string{"kube-controller-manager",
		"--kubeconfig=" + d.Kubeconfig(),
		"--leader-elect=false",
		"--use-service-account-credentials=false",
		"--service-account-private-key-file=" + d.keyFile(tokenKey),
		"--root-ca-file=" + d.certFile("ca"),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.Ports[ControllerManager]),
		"--tls-cert-file=" + d.certFile(loopbackPair),
		"--tls-private-key-file=" + d.keyFile(loopbackPair),
		"--profiling=false",
	}, clientLimits()...)
}

// schedulerNeeds returns the scheduler's Needs. It includes CRDs if the cluster has them, because the scheduler then
// watches their resources.
func schedulerNeeds(c *Config) []string {
	if c.has(CRDs) {
		return []string{APIServer, CRDs}
	}
	return []string{APIServer}
}

// schedulerArgs returns the scheduler's command-line arguments. Without the CRDs, the cluster runs the plain
// kube-scheduler, so that a t9k-scheduler can be installed beside it.
func schedulerArgs(d Dir, c *Config) []string {
	args := []string{"plain-kube-scheduler"}
	if c.has(CRDs) {
		args = []string{"kube-scheduler", "--config=" + d.settingsFile(Scheduler)}
	}
	return slices.Concat(append(args,
		"--kubeconfig="+d.componentKubeconfig(Scheduler),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(c.Ports[Scheduler]),
		"--tls-cert-file="+d.certFile(loopbackPair),
		"--tls-private-key-file="+d.keyFile(loopbackPair),
		"--profiling=false",
	), clientLimits())
}

// dnsArgs returns the command-line arguments of the name server and service proxy.
func dnsArgs(d Dir, c *Config) []string {
	args := []string{"dns",
		"--kubeconfig=" + d.Kubeconfig(),
		"--domain=" + clusterDomain,
		"--listen=" + hostPort(c.gateway(), dnsPort),
		"--bridge=" + c.Bridge,
		"--services=" + c.Services.String(),
		"--api-front=" + hostPort(c.gateway(), c.Ports[APIServer]),
		"--api-server=" + c.loopback(APIServer),
	}
	if c.Rootless {
		args = append(args, "--upstream-socket="+d.dnsSocket())
	}
	return args
}

// kubeletNeeds returns the kubelet's Needs. It includes LostPods if the cluster has this step, because otherwise the
// kubelet would report the lost pods' containers before that step fails the pods.
func kubeletNeeds(c *Config) []string {
	if slices.Contains(c.Components, LostPods) {
		return []string{LostPods}
	}
	return nil
}

// operatorNeeds returns the operator's Needs. It includes Webhook if the cluster has this step, because otherwise the
// operator would retry with a delay until the webhook's configuration exists.
func operatorNeeds(c *Config) []string {
	if slices.Contains(c.Components, Webhook) {
		return []string{CRDs, Webhook}
	}
	return []string{CRDs}
}

// operatorArgs returns the operator's command-line arguments.
func operatorArgs(d Dir) []string {
	return []string{"operator",
		"--kubeconfig=" + d.Kubeconfig(),
		"--namespace=" + config.Namespace,
		"--config=" + d.settingsFile(Operator),
	}
}

// hostPort joins an address and a port.
func hostPort(a netip.Addr, port int) string { return fmt.Sprintf("%s:%d", a, port) }
