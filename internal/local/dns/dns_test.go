package dns

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"tensorstack.dev/batch/test/kit/await"
)

// service returns a Service in the namespace "ns".
func service(name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: ports},
	}
}

// endpointsOf returns an EndpointSlice of a headless Service.
func endpointsOf(name, suffix string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + suffix, Namespace: "ns",
			Labels: map[string]string{discoveryv1.LabelServiceName: name, corev1.IsHeadlessService: ""},
		},
		Endpoints: endpoints,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
}

func endpoint(hostname string, ready *bool, addresses ...string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	if hostname != "" {
		e.Hostname = &hostname
	}
	return e
}

var web = corev1.ServicePort{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP}

// serve starts a server with the objects of client and returns its address. Its upstream is a name server that knows
// only example.org.
func serve(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	upstream := listen(t, dns.HandlerFunc(func(w dns.ResponseWriter, request *dns.Msg) {
		reply := new(dns.Msg).SetReply(request)
		if request.Question[0].Name == "example.org." {
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "example.org.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 99}, A: net.IPv4(9, 9, 9, 9)}}
		} else {
			reply.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(reply)
	}))
	address, start := serveLater(t, client, relayed(t, &Upstream{addresses: func() []string { return []string{upstream} }}))
	start()
	return address
}

// serveLater starts a server that receives the objects of client only after the caller has called start.
func serveLater(t *testing.T, client kubernetes.Interface, upstream *Upstream) (address string, start func()) {
	t.Helper()
	server := NewServer("cluster.local", upstream)
	factory := informers.NewSharedInformerFactory(client, 0)
	if err := server.Watch(factory); err != nil {
		t.Fatal(err)
	}
	address = freeAddress(t)
	done := make(chan error, 1)
	go func() { done <- server.Serve(t.Context(), address) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return address, func() { factory.Start(t.Context().Done()) }
}

// relayed puts a Unix socket between the server and its upstream, as in a rootless cluster.
func relayed(t *testing.T, upstream *Upstream) *Upstream {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { _ = upstream.Serve(l) }() // returns when the listener is closed
	return Socket(path)
}

// freeAddress returns an address with a free TCP port. The tests assume that this port is free for UDP, too.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// listen serves DNS over UDP on a free port until the test ends, and returns its address.
func listen(t *testing.T, handler dns.Handler) string {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: packets, Handler: handler}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { packets.Close() })
	return packets.LocalAddr().String()
}

// ask returns the answer's code, followed by the types and data of its records in alphabetical order. "truncated" marks
// a truncated answer, and "denied" an answer with an authority section.
func ask(t *testing.T, network, address, name, kind string) string {
	t.Helper()
	client := &dns.Client{Net: network, Timeout: time.Minute}
	question := new(dns.Msg).SetQuestion(name, dns.StringToType[kind])
	var answer *dns.Msg
	await.Until(t, "the server answers", func() (err error) { // the server may still be starting
		answer, _, err = client.Exchange(question, address)
		return err
	})
	var records []string
	for _, r := range answer.Answer {
		f := strings.Fields(r.String())
		records = append(records, strings.Join(f[3:], " "))
	}
	slices.Sort(records)
	text := dns.RcodeToString[answer.Rcode]
	if answer.Truncated {
		text += " truncated"
	}
	if len(answer.Ns) > 0 {
		text += " denied"
	}
	return strings.Join(append([]string{text}, records...), ", ")
}

func TestServerAnswersForServicesAndPods(t *testing.T) {
	address := serve(t, fake.NewClientset(
		service("plain", "10.0.0.7", web),
		service("empty", "None", web),
		service("job", "None", web),
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "alias", Namespace: "ns"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"},
		},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "inner", Namespace: "ns"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "plain.ns.svc.cluster.local"},
		},
		endpointsOf("job", "1", endpoint("job-worker-0", ptr.To(true), "10.1.0.2"), endpoint("", nil, "10.1.0.3")),
		endpointsOf("job", "2", endpoint("job-worker-1", ptr.To(false), "10.1.0.4"), endpoint("job-worker-2", ptr.To(true), "fd00::5")),
	))
	for _, c := range []struct{ name, kind, want string }{
		{"plain.ns.svc.cluster.local.", "A", "NOERROR, A 10.0.0.7"},
		{"PLAIN.ns.Svc.cluster.LOCAL.", "A", "NOERROR, A 10.0.0.7"},
		{"plain.ns.svc.cluster.local.", "AAAA", "NOERROR denied"},
		{"_web._tcp.plain.ns.svc.cluster.local.", "SRV", "NOERROR, SRV 0 100 80 plain.ns.svc.cluster.local."},
		{"7.0.0.10.in-addr.arpa.", "PTR", "NOERROR, PTR plain.ns.svc.cluster.local."},

		{"empty.ns.svc.cluster.local.", "A", "NOERROR denied"},
		{"x.empty.ns.svc.cluster.local.", "A", "NXDOMAIN denied"},

		{"job.ns.svc.cluster.local.", "A", "NOERROR, A 10.1.0.2, A 10.1.0.3"},
		{"job.ns.svc.cluster.local.", "AAAA", "NOERROR, AAAA fd00::5"},
		{"job-worker-0.job.ns.svc.cluster.local.", "A", "NOERROR, A 10.1.0.2"},
		{"job-worker-0.job.ns.svc.cluster.local.", "AAAA", "NOERROR denied"},
		{"10-1-0-3.job.ns.svc.cluster.local.", "A", "NOERROR, A 10.1.0.3"},
		{"job-worker-1.job.ns.svc.cluster.local.", "A", "NXDOMAIN denied"},
		{"2.0.1.10.in-addr.arpa.", "PTR", "NOERROR, PTR job-worker-0.job.ns.svc.cluster.local."},
		{"_web._tcp.job.ns.svc.cluster.local.", "SRV", "NOERROR, SRV 0 100 8080 10-1-0-3.job.ns.svc.cluster.local., " +
			"SRV 0 100 8080 job-worker-0.job.ns.svc.cluster.local., SRV 0 100 8080 job-worker-2.job.ns.svc.cluster.local."},

		{"alias.ns.svc.cluster.local.", "CNAME", "NOERROR, CNAME example.org."},
		{"alias.ns.svc.cluster.local.", "A", "NOERROR, A 9.9.9.9, CNAME example.org."},
		{"inner.ns.svc.cluster.local.", "A", "NOERROR, A 10.0.0.7, CNAME plain.ns.svc.cluster.local."},

		// A name without records exists if there are records below it.
		{"cluster.local.", "A", "NOERROR denied"},
		{"svc.cluster.local.", "A", "NOERROR denied"},
		{"_tcp.plain.ns.svc.cluster.local.", "SRV", "NOERROR denied"},
		{"other.svc.cluster.local.", "A", "NXDOMAIN denied"},
		{"nothing.ns.svc.cluster.local.", "A", "NXDOMAIN denied"},

		{"example.org.", "A", "NOERROR, A 9.9.9.9"},
		{"nothing.example.org.", "A", "NXDOMAIN"},
		{"notcluster.local.", "A", "NXDOMAIN"},
		{"9.9.9.9.in-addr.arpa.", "PTR", "NXDOMAIN"},
	} {
		if got := ask(t, "udp", address, c.name, c.kind); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.name, c.kind, got, c.want)
		}
	}
	if got := ask(t, "tcp", address, "plain.ns.svc.cluster.local.", "A"); got != "NOERROR, A 10.0.0.7" {
		t.Errorf("by TCP: %s", got)
	}
}

func TestAnswersFollowTheObjects(t *testing.T) {
	client := fake.NewClientset(service("job", "None"))
	address := serve(t, client)
	slices := client.DiscoveryV1().EndpointSlices("ns")
	awaitAnswer := func(name, want string) {
		t.Helper()
		await.Until(t, name+" is "+want, func() error {
			if got := ask(t, "udp", address, name, "A"); got != want {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	const a, b, all = "a.job.ns.svc.cluster.local.", "b.job.ns.svc.cluster.local.", "job.ns.svc.cluster.local."
	awaitAnswer(a, "NXDOMAIN denied")

	one := endpointsOf("job", "1", endpoint("a", nil, "10.1.0.2"))
	if _, err := slices.Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(a, "NOERROR, A 10.1.0.2")

	// The pod is replaced by one with another address, and another slice has a second pod.
	one.Endpoints[0].Addresses[0] = "10.1.0.9"
	if _, err := slices.Update(t.Context(), one.DeepCopy(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := slices.Create(t.Context(), endpointsOf("job", "2", endpoint("b", nil, "10.1.0.3")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(a, "NOERROR, A 10.1.0.9")
	awaitAnswer(b, "NOERROR, A 10.1.0.3")
	awaitAnswer(all, "NOERROR, A 10.1.0.3, A 10.1.0.9")
	if got := ask(t, "udp", address, "2.0.1.10.in-addr.arpa.", "PTR"); got != "NXDOMAIN" {
		t.Errorf("the removed address: %s", got)
	}

	if err := slices.Delete(t.Context(), "job-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(a, "NXDOMAIN denied")
	awaitAnswer(all, "NOERROR, A 10.1.0.3")
	if err := client.CoreV1().Services("ns").Delete(t.Context(), "job", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := slices.Delete(t.Context(), "job-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(all, "NXDOMAIN denied")
	awaitAnswer("svc.cluster.local.", "NXDOMAIN denied")
	awaitAnswer("cluster.local.", "NOERROR denied")
}

func TestLongAnswersGoByTCP(t *testing.T) {
	var endpoints []discoveryv1.Endpoint
	for i := range 100 {
		endpoints = append(endpoints, endpoint(fmt.Sprintf("h%d", i), nil, fmt.Sprintf("10.1.0.%d", i)))
	}
	address := serve(t, fake.NewClientset(endpointsOf("job", "1", endpoints...)))
	const name = "job.ns.svc.cluster.local."
	if got := ask(t, "udp", address, name, "A"); !strings.HasPrefix(got, "NOERROR truncated") {
		t.Errorf("by UDP: %s", got)
	}
	if got := ask(t, "tcp", address, name, "A"); strings.Count(got, ", A ") != 100 {
		t.Errorf("by TCP: %s", got)
	}
}

func TestUpstreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	upstream := ResolvConf(path)
	server := NewServer("cluster.local", upstream)
	reply := server.answer(new(dns.Msg).SetQuestion("example.org.", dns.TypeA), false)
	if reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("without a name server: %s", dns.RcodeToString[reply.Rcode])
	}
	if err := os.WriteFile(path, []byte("search a.b\nnameserver 10.0.0.1\nnameserver fd00::1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := upstream.addresses(), []string{"10.0.0.1:53", "[fd00::1]:53"}; !slices.Equal(got, want) {
		t.Errorf("upstreams %v, want %v", got, want)
	}
}

// TestQuestionsWaitForTheZone verifies that a server that has just started does not deny names that it has not read
// yet. It must answer a question only after it has filled the zone.
func TestQuestionsWaitForTheZone(t *testing.T) {
	address, start := serveLater(t, fake.NewClientset(service("web", "10.0.0.7", web)), ResolvConf(os.DevNull))
	question := new(dns.Msg).SetQuestion("web.ns.svc.cluster.local.", dns.TypeA)
	for _, network := range []string{"udp", "tcp"} {
		client := &dns.Client{Net: network, Timeout: 300 * time.Millisecond}
		if reply, _, err := client.Exchange(question.Copy(), address); err == nil {
			t.Errorf("before the zone is filled the answer by %s is\n%s", network, reply)
		}
	}
	answered := make(chan error, 1)
	go func() {
		client := &dns.Client{Timeout: time.Minute}
		reply, _, err := client.Exchange(question.Copy(), address)
		if err == nil && len(reply.Answer) != 1 {
			err = fmt.Errorf("the answer is\n%s", reply)
		}
		answered <- err
	}()
	start()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
