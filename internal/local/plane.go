package local

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"tensorstack.dev/batch/config"
)

// kubeletPort is where the kubelet listens, on the bridge's address.
const kubeletPort = 10250

// dnsPort is where the name server listens, on the same address.
const dnsPort = 53

// usable is the API server's readiness for most of the cluster's other components. What else it waits for at its start, by asking
// once a second, is not for them: none makes a pod of a system priority, and their user is the administrator, or the node, for
// whom there is an authorizer of its own. The scheduler has its rights by one of the roles. And the controller manager gives up
// when /healthz does not say that all is done 10 s after it was started.
const usable = "/readyz?exclude=poststarthook/rbac/bootstrap-roles&exclude=poststarthook/scheduling/bootstrap-system-priority-classes"

// clusterDomain ends the names that the cluster's DNS answers for.
const clusterDomain = "cluster.local"

// newPlane lists the components that c asks for. Its kubelet ends the pods as end says.
func newPlane(d Dir, c *Config, a *api, end *shutdown) []Component {
	all := []Component{
		{Name: Etcd, Args: etcdArgs(d, c), Ready: etcdReady(d), Cause: diskFull(d)},
		{Name: APIServer, Needs: []string{Etcd}, Args: apiServerArgs(d, c), Ready: a.healthy("/readyz"), Usable: a.healthy(usable)},
		{Name: CRDs, Uses: []string{APIServer}, Run: a.installCRDs},
		{Name: Webhook, Uses: []string{APIServer}, Run: a.installWebhook(c.loopback(Webhook))},
		{Name: LostPods, Uses: []string{APIServer}, Run: a.failLostPods},
		{Name: DNS, Uses: []string{APIServer}, Args: dnsArgs(d, c), Ready: resolves(c)},
		{Name: Kubelet, Uses: []string{APIServer}, Needs: kubeletNeeds(c), Args: kubeletArgs(d, c), Env: kubeletEnv(d),
			Ready: both(a.serves(hostPort(c.gateway(), kubeletPort), "/healthz"), a.nodeReady), Drain: end.drain(a)},
		{Name: ControllerManager, Needs: []string{APIServer}, Args: controllerManagerArgs(d, c),
			Ready: both(a.serves(c.loopback(ControllerManager), "/healthz"), a.hasDefaultServiceAccount)},
		{Name: Scheduler, Needs: []string{APIServer, CRDs}, Args: schedulerArgs(d, c),
			Ready: a.serves(c.loopback(Scheduler), "/readyz")},
		{Name: Operator, Needs: operatorNeeds(c), Args: operatorArgs(d, c), Ready: a.servesPlainly(c.loopback(Operator), "/readyz")},
	}
	var plane []Component
	for _, component := range all {
		if slices.Contains(c.Components, component.Name) {
			component.Args = append(component.Args, c.ExtraArgs[component.Name]...)
			plane = append(plane, component)
		}
	}
	return plane
}

// etcdArgs let etcd listen on a socket in the cluster's directory: whoever can write to etcd owns the cluster, and any
// user of the machine can reach a port. Its URLs must have a port to be accepted, but nobody ever calls them.
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
		args = append(args, "--endpoint-reconciler-type=none") // nobody serves at the address that would be published
	}
	if slices.Contains(c.Components, ControllerManager) {
		args = append(args, "--enable-admission-plugins=NodeRestriction")
	} else {
		// Nobody makes the ServiceAccount without which no pod would be admitted.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.AuditPolicy != "" {
		args = append(args, "--audit-policy-file="+c.AuditPolicy, "--audit-log-path="+d.AuditLog(), "--audit-log-maxsize=1024")
	}
	return args
}

// clientLimits lift the limits of a component's requests, in requests per second, which are made for many-node clusters.
func clientLimits() []string { return []string{"--kube-api-qps=1000", "--kube-api-burst=2000"} }

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

func schedulerArgs(d Dir, c *Config) []string {
	return append([]string{"kube-scheduler",
		"--kubeconfig=" + d.componentKubeconfig(Scheduler),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.Ports[Scheduler]),
		"--tls-cert-file=" + d.certFile(loopbackPair),
		"--tls-private-key-file=" + d.keyFile(loopbackPair),
		"--profiling=false",
	}, clientLimits()...)
}

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

// kubeletNeeds puts an end to the lost pods before the kubelet, which would report how it finds their containers.
func kubeletNeeds(c *Config) []string {
	if slices.Contains(c.Components, LostPods) {
		return []string{LostPods}
	}
	return nil
}

// operatorNeeds puts the webhook's configuration before the operator, which would otherwise come back for it a while later.
func operatorNeeds(c *Config) []string {
	if slices.Contains(c.Components, Webhook) {
		return []string{CRDs, Webhook}
	}
	return []string{CRDs}
}

func operatorArgs(d Dir, c *Config) []string {
	webhook := "0"
	if slices.Contains(c.Components, Webhook) {
		webhook = c.loopback(Webhook)
	}
	return []string{"operator",
		"--kubeconfig=" + d.Kubeconfig(),
		"--leader-elect=false",
		"--namespace=" + config.Namespace,
		"--health-probe-bind-address=" + c.loopback(Operator),
		"--metrics-bind-address=0",
		"--webhook-bind-address=" + webhook,
		"--cluster-domain=" + clusterDomain,
	}
}

func hostPort(a netip.Addr, port int) string { return fmt.Sprintf("%s:%d", a, port) }
