package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/program"
)

// chartValues is the file with the chart values of the test.
const chartValues = "testdata/containers.values.yaml"

// pythonName is the image of the client pods. The node has it: see pythonImage.
const pythonName = "python:3"

// flowClients holds the pods that connect to the programs. The values of the chart select prometheus for the metrics
// and proxy for the console. neighbour shares only the namespace of prometheus, and namesake only its label.
var flowClients = []struct{ name, namespace, app string }{
	{"prometheus", "monitoring", "prometheus"},
	{"neighbour", "monitoring", "other"},
	{"namesake", "other", "prometheus"},
	{"proxy", "ingress", "proxy"},
}

// everyone lists the names of all flowClients, in their order.
const everyone = "prometheus neighbour namesake proxy"

// unnamedPort is a port of an operator's pod that no policy allows. The test listens on it.
const unnamedPort = 7070

// flows lists the clients that reach each port while the policies are in force. All clients reach the ports of webhooks
// and probes, because the addresses from which API servers and kubelets call are unknown. The calls of this single node
// do not test the policies: a node always reaches its own pods.
var flows = []struct {
	component string
	port      int32
	clients   string
}{
	{"operator", 9443, everyone}, // webhook
	{"operator", 8081, everyone}, // probes
	{"operator", 8443, "prometheus"},
	{"operator", unnamedPort, ""},
	{"scheduler", 10259, everyone}, // probes, and metrics for users whom the API server authorizes
	{"console", 8080, "proxy"},
	{"console", 8081, everyone}, // probes
	{"console", 8443, "prometheus"},
}

// checkNetworkPolicies verifies which clients reach the programs before and after the chart's policies are enforced.
// The policies stay in force, so the following steps also verify that webhooks answer and pods become ready under them.
func (c *containers) checkNetworkPolicies() {
	requirePacketFilter(c.T)
	s := newSpaceOn(c.T, c.Plane)
	addresses := c.flowAddresses(s)
	for _, f := range flowClients {
		startFlowClient(s, f.namespace, f.name, f.app)
	}
	all, allowed := map[string]string{}, map[string]string{}
	for i, f := range flows {
		all[addresses[i]], allowed[addresses[i]] = everyone, f.clients
	}
	s.awaitFlows("every client reaches everything while nothing enforces the policies", addresses, all)
	controller := c.enforcePolicies()
	defer func() {
		if c.Failed() {
			c.Logf("the log of the network policy controller ends with:\n%s", program.Tail(controller.Log.String()))
		}
	}()
	s.awaitFlows("each client reaches what the policies allow", addresses, allowed)
	if !controller.Running() {
		c.Error("the network policy controller has ended")
	}
	c.checkWebhookAnswers()
}

// requirePacketFilter skips the test unless the network policy controller can work on this machine. If all requirements
// must be met, it fails the test instead. It changes a setting only in the test's own network namespace.
func requirePacketFilter(t *testing.T) {
	t.Helper()
	for _, command := range [][]string{{"iptables", "-S"}, {"ipset", "list", "-name"}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			require.Missing(t, fmt.Sprintf("iptables and ipset (Debian: apt-get install iptables ipset): %v: %v: %s", command, err, out))
		}
	}
	// This setting makes packets between two pods pass through iptables, because a bridge connects the pods.
	if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0); err != nil {
		require.Missing(t, "the kernel's module br_netfilter: "+err.Error())
	}
}

// enforcePolicies starts a network policy controller, which stops with the cluster.
func (c *containers) enforcePolicies() *program.Program {
	c.Helper()
	path := os.Getenv("KUBEROUTER")
	if path == "" {
		c.Fatal("KUBEROUTER must name the program of test/kuberouter: use make e2e-containers")
	}
	nodes := &corev1.NodeList{}
	s := c.system()
	s.Must(c.Client.List(s.Context(), nodes))
	controller, err := c.Launch(path, c.Env.Kubeconfig, nodes.Items[0].Name)
	s.Must(err)
	return controller
}

// flowAddresses returns the address of each entry of flows in the pods of the programs. It also starts the server of
// listen in a pod of the operator.
func (c *containers) flowAddresses(s *space) []string {
	c.Helper()
	pods := map[string]*corev1.Pod{}
	for _, p := range c.system().Pods() {
		pods[p.Labels["app.kubernetes.io/component"]] = &p
	}
	c.listen(s, pods["operator"])
	var addresses []string
	for _, f := range flows {
		if pods[f.component] == nil {
			c.Fatalf("there is no pod of the %s", f.component)
		}
		addresses = append(addresses, net.JoinHostPort(pods[f.component].Status.PodIP, strconv.Itoa(int(f.port))))
	}
	return addresses
}

// listen runs a server on unnamedPort in a pod of the operator, so that connections to the port would succeed without
// the policies.
func (c *containers) listen(s *space, p *corev1.Pod) {
	c.Helper()
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "listener", Image: pythonName, Command: []string{"python3", "-m", "http.server", strconv.Itoa(unnamedPort)},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}})
	_, err := s.Core.CoreV1().Pods(config.Namespace).UpdateEphemeralContainers(s.Context(), p.Name, p, metav1.UpdateOptions{})
	s.Must(err)
}

// startFlowClient starts a pod from which the test connects to addresses, and waits until the pod runs. It creates the
// namespace unless the namespace exists.
func startFlowClient(s *space, namespace, name, app string) {
	s.Helper()
	beside := s.Beside(namespace)
	err := s.Client.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s.Must(client.IgnoreAlreadyExists(err)) // clients may share a namespace
	beside.AwaitServiceAccount()
	beside.Create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "main", Image: pythonName, Command: []string{"sleep", "inf"}}},
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
		}})
	beside.Await("the client runs", func() error {
		p := &corev1.Pod{}
		if err := beside.Get(name, p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("its phase is %s", p.Status.Phase)
		}
		return nil
	})
}

// connect is a Python program that prints the addresses among its arguments that accept a connection.
const connect = `
import socket, sys
for address in sys.argv[1:]:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
        print(address)
    except OSError:
        pass
`

// awaitFlows waits until exactly the wanted clients reach each address. want holds, by address, the names of the
// clients in the order of flowClients, separated by spaces.
func (s *space) awaitFlows(what string, addresses []string, want map[string]string) {
	s.Helper()
	s.Await(what, func() error {
		reached := map[string][]string{}
		for _, f := range flowClients {
			out := s.exec(f.namespace, f.name, "main", "python3 -c '"+connect+"' "+strings.Join(addresses, " "))
			for _, address := range strings.Fields(out) {
				reached[address] = append(reached[address], f.name)
			}
		}
		var wrong []string
		for i, address := range addresses {
			if got := strings.Join(reached[address], " "); got != want[address] {
				wrong = append(wrong, fmt.Sprintf("port %d of the %s: reached by %q, want %q", flows[i].port, flows[i].component, got, want[address]))
			}
		}
		if len(wrong) > 0 {
			return errors.New(strings.Join(wrong, "\n"))
		}
		return nil
	})
}
