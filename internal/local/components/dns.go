package components

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"tensorstack.dev/batch/internal/local/dns"
	"tensorstack.dev/batch/internal/local/freebind"
	"tensorstack.dev/batch/internal/local/serviceproxy"
)

// network is the component "dns": it serves the DNS names and the ClusterIPs of Services to pods.
type network struct {
	kubeconfig string
	domain     string
	listen     string // address of the DNS server
	resolvConf string
	relay      string // socket of a process outside this network namespace that forwards to the machine's name servers
	bridge     string
	services   string // range of ClusterIPs
	apiFront   string // address at which pods reach the API server
	apiServer  string // address at which the API server listens
}

// newDNSCommand returns the command of the name server. The command also runs the proxy of Services, which watches the
// same objects.
func newDNSCommand() *cobra.Command {
	n := &network{}
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Serve names and ClusterIPs to pods",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return n.run(genericapiserver.SetupSignalContext()) },
	}
	f := cmd.Flags()
	f.StringVar(&n.kubeconfig, "kubeconfig", "", "kubeconfig file")
	f.StringVar(&n.domain, "domain", "cluster.local", "domain of the cluster")
	f.StringVar(&n.listen, "listen", "", "address of the DNS server")
	f.StringVar(&n.resolvConf, "resolv-conf", "/etc/resolv.conf", "file with the name servers for all other domains")
	f.StringVar(&n.relay, "upstream-socket", "", "Unix socket at which all other domains are asked for instead")
	f.StringVar(&n.bridge, "bridge", "", "network device that packets to ClusterIPs come from")
	f.StringVar(&n.services, "services", "", "range of ClusterIPs")
	f.StringVar(&n.apiFront, "api-front", "", "address under which pods reach the API server")
	f.StringVar(&n.apiServer, "api-server", "", "address of the API server")
	return cmd
}

// upstream returns the resolver of names outside the cluster.
func (n *network) upstream() *dns.Upstream {
	if n.relay != "" {
		return dns.Socket(n.relay)
	}
	return dns.ResolvConf(n.resolvConf)
}

// run serves until ctx ends or one of its servers fails.
func (n *network) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", n.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	server := dns.NewServer(n.domain, n.upstream())
	if err := server.Watch(factory); err != nil {
		return err
	}
	proxy, err := serviceproxy.New(factory)
	if err != nil {
		return err
	}
	front, err := freebind.Config().Listen(ctx, "tcp", n.apiFront)
	if err != nil {
		return fmt.Errorf("listening for the API server: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	context.AfterFunc(ctx, func() { front.Close() })
	factory.Start(ctx.Done())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		serviceproxy.Forward(ctx, front, func() []string { return []string{n.apiServer} })
		return nil
	})
	group.Go(func() error {
		proxy.Run(ctx)
		return nil
	})
	group.Go(func() error { return server.Serve(ctx, n.listen) })
	group.Go(func() error { return routeServices(ctx, n.bridge, n.services) })
	return group.Wait()
}

// routeServices adds a local route for the ClusterIPs, so that the machine accepts packets to them. It waits for the
// bridge, because with the process runtime, the kubelet's process creates it. The kernel removes the route together
// with the bridge.
func routeServices(ctx context.Context, bridge, services string) error {
	prefix, err := netip.ParsePrefix(services)
	if err != nil {
		return err
	}
	destination := &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
	for {
		err := addLocalRoute(bridge, destination)
		var missing netlink.LinkNotFoundError
		if err == nil || !errors.As(err, &missing) && !errors.Is(err, unix.ENETDOWN) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// addLocalRoute adds or replaces a local route through the bridge.
func addLocalRoute(bridge string, destination *net.IPNet) error {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("looking for the bridge: %w", err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: destination, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("routing %s to %s: %w", destination, bridge, err)
	}
	return nil
}
