// Package serviceproxy serves the ClusterIPs of Services over TCP without changing the machine's firewall: it listens
// on each ClusterIP and forwards connections to the Service's endpoints. It does not serve UDP. Start reading at
// Proxy.Run.
package serviceproxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"tensorstack.dev/batch/internal/local/freebind"
)

// dialTimeout is how long an endpoint may take to accept a connection.
const dialTimeout = 5 * time.Second

// Proxy listens on the ClusterIPs of Services and forwards their connections.
type Proxy struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	changed  chan struct{}
	synced   []cache.InformerSynced
}

// New returns a proxy for the Services in factory. The caller starts the factory.
func New(factory informers.SharedInformerFactory) (*Proxy, error) {
	services, slices := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	p := &Proxy{services: services.Lister(), slices: slices.Lister(), changed: make(chan struct{}, 1)}
	registration, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.wake() },
		UpdateFunc: func(any, any) { p.wake() },
		DeleteFunc: func(any) { p.wake() },
	})
	if err != nil {
		return nil, err
	}
	p.synced = []cache.InformerSynced{registration.HasSynced, slices.Informer().HasSynced}
	return p, nil
}

// wake makes Run compare its listeners with the Services again.
func (p *Proxy) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// servicePort is an address that the proxy listens on, and the Service port behind it.
type servicePort struct {
	address            netip.AddrPort
	namespace, service string
	port               string // name of the Service's port
}

// Run serves until ctx ends. It then closes all listeners and connections and returns.
func (p *Proxy) Run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.synced...) {
		return
	}
	open := map[servicePort]net.Listener{}
	var wg sync.WaitGroup
	for {
		wanted := p.servicePorts()
		for f, l := range open {
			if !wanted[f] {
				l.Close()
				delete(open, f)
			}
		}
		for f := range wanted {
			if open[f] != nil {
				continue
			}
			l, err := freebind.Config().Listen(ctx, "tcp", f.address.String())
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot listen on a ClusterIP", "service", klog.KRef(f.namespace, f.service))
				continue
			}
			open[f] = l
			wg.Go(func() { Forward(ctx, l, func() []string { return p.endpoints(f) }) })
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			for l := range maps.Values(open) {
				l.Close()
			}
			wg.Wait()
			return
		}
	}
}

// servicePorts returns the TCP ports of all Services that have a ClusterIP.
func (p *Proxy) servicePorts() map[servicePort]bool {
	ports := map[servicePort]bool{}
	services, err := p.services.List(labels.Everything())
	if err != nil {
		return ports // cannot happen: a lister reads only the cache
	}
	for _, s := range services {
		for _, ip := range s.Spec.ClusterIPs {
			address, err := netip.ParseAddr(ip)
			if err != nil {
				continue // the ClusterIP of a headless Service is "None"
			}
			for _, port := range s.Spec.Ports {
				if port.Protocol == corev1.ProtocolTCP {
					ports[servicePort{netip.AddrPortFrom(address, uint16(port.Port)), s.Namespace, s.Name, port.Name}] = true
				}
			}
		}
	}
	return ports
}

// endpoints lists the ready addresses behind a Service port in random order.
func (p *Proxy) endpoints(f servicePort) []string {
	list, err := p.slices.EndpointSlices(f.namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: f.service}))
	if err != nil {
		return nil
	}
	var addresses []string
	for _, slice := range list {
		for _, port := range slice.Ports {
			if port.Port == nil || ptr.Deref(port.Name, "") != f.port {
				continue
			}
			addresses = append(addresses, readyAddresses(slice, uint16(*port.Port))...)
		}
	}
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	return addresses
}

// readyAddresses lists the addresses of the ready endpoints in a slice, each with port. An unknown state counts as
// ready.
func readyAddresses(slice *discoveryv1.EndpointSlice, port uint16) []string {
	var addresses []string
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, a := range e.Addresses {
			if ip, err := netip.ParseAddr(a); err == nil {
				addresses = append(addresses, netip.AddrPortFrom(ip, port).String())
			}
		}
	}
	return addresses
}

// Forward accepts connections until the listener is closed. For each connection it calls addresses, and forwards the
// connection to the first address that accepts it. Forward returns when all connections have ended. They end at the
// latest when ctx ends.
func Forward(ctx context.Context, l net.Listener, addresses func() []string) {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // a temporary error, such as too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		targets := addresses()
		connections.Go(func() { forwardConn(ctx, client.(*net.TCPConn), targets) })
	}
}

// forwardConn forwards one connection to the first address that accepts one. If none does, it resets the connection.
func forwardConn(ctx context.Context, client *net.TCPConn, addresses []string) {
	defer client.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, a := range addresses {
		conn, err := dialer.DialContext(ctx, "tcp", a)
		if err != nil {
			continue
		}
		end := context.AfterFunc(ctx, func() {
			client.Close()
			conn.Close()
		})
		defer end()
		join(client, conn.(*net.TCPConn))
		return
	}
	_ = client.SetLinger(0) // closes with a reset, so that the client sees a refused connection
}

// join copies data in both directions until both have ended or one fails.
func join(a, b *net.TCPConn) {
	defer b.Close()
	var wg sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		wg.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				a.Close()
				b.Close()
				return
			}
			_ = way[1].CloseWrite() // fails only if the connection is already closed
		})
	}
	wg.Wait()
}
