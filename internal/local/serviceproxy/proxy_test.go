package serviceproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"tensorstack.dev/batch/test/kit/await"
)

// endpoint starts a server that answers each connection with name and the data that it received. It returns the port of
// the server.
func endpoint(t *testing.T, name string) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				data, _ := io.ReadAll(conn) // until the other side has sent everything
				fmt.Fprintf(conn, "%s got %s", name, data)
			}()
		}
	}()
	return int32(netip.MustParseAddrPort(l.Addr().String()).Port())
}

func slice(service string, port int32, ready bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", service, port), Namespace: "ns",
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: &port}},
	}
}

// talk sends a request to an address and returns the whole answer.
func talk(address, request string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	return string(answer), err
}

func TestProxyFollowsServicesAndEndpoints(t *testing.T) {
	// Every address in 127.0.0.0/8 belongs to this machine, so one of them can serve as a ClusterIP.
	const ip = "127.83.7.9"
	client := fake.NewClientset(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"},
		Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{
			{Name: "web", Port: 2080, Protocol: corev1.ProtocolTCP}, {Name: "other", Port: 2081, Protocol: corev1.ProtocolTCP},
		}},
	}, slice("s", endpoint(t, "unready"), false))
	factory := informers.NewSharedInformerFactory(client, 0)
	proxy, err := New(factory)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		proxy.Run(ctx)
		close(done)
	}()

	awaitAnswer := func(what, address string, ok func(answer string, err error) bool) {
		t.Helper()
		await.Until(t, "the expected answer "+what, func() error {
			answer, err := talk(address, "hello")
			if ok(answer, err) {
				return nil
			}
			got := fmt.Sprintf("%q, %v", answer, err)
			return errors.New("got " + got)
		})
	}
	refused := func(_ string, err error) bool { return err != nil }
	awaitAnswer("without a ready endpoint", ip+":2080", refused)

	port := endpoint(t, "first")
	if _, err := client.DiscoveryV1().EndpointSlices("ns").Create(ctx, slice("s", port, true), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitAnswer("with a ready endpoint", ip+":2080", func(answer string, _ error) bool { return answer == "first got hello" })
	awaitAnswer("on the port that no endpoint has", ip+":2081", refused)

	if err := client.CoreV1().Services("ns").Delete(ctx, "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitAnswer("after the Service was deleted", ip+":2080", refused)
	cancel()
	<-done
}

func TestJoinEndsWhenTheClientAborts(t *testing.T) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	back, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	go Forward(t.Context(), front, func() []string { return []string{"127.0.0.1:1", back.Addr().String()} })
	client, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := back.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	client.Close() // aborts the request
	if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err == nil {
		t.Error("the endpoint's connection outlives the client's")
	} else if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // a net.Error is never wrapped here
		t.Error("the endpoint's connection outlives the client's")
	}
}

// TestForwardEndsItsConnections verifies that a connection outlives the listener but not Forward's context, and that
// Forward then returns.
func TestForwardEndsItsConnections(t *testing.T) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		Forward(ctx, front, func() []string { return []string{back.Addr().String()} })
		close(ended)
	}()
	client, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := back.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	front.Close()
	if _, err := server.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatalf("the connection does not outlive the listener: %v", err)
	}
	cancel()
	<-ended
	for name, conn := range map[string]net.Conn{"client": client, "endpoint": server} {
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		var timeout net.Error
		if _, err := conn.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("the connection of the %s is still open", name)
		}
	}
}
