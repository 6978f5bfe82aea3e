// Command kuberouter enforces the NetworkPolicies of a cluster on its only node. It runs the network policy controller
// of kube-router, without the rest of kube-router. It changes iptables and ipsets of its network namespace and does not
// restore them.
//
//	kuberouter KUBECONFIG NODE
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kuberouter KUBECONFIG NODE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "kuberouter:", err)
		os.Exit(1)
	}
}

// run enforces policies until ctx ends.
func run(ctx context.Context, kubeconfig, node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	settings := options.NewKubeRouterConfig()
	settings.EnableIPv4, settings.HostnameOverride = true, node
	iptables, ipsets, err := netpol.NewIPTablesHandlers(settings)
	if err != nil {
		return err
	}

	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods().Informer(), factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	controller, err := netpol.NewNetworkPolicyController(client, settings, pods, policies, namespaces, &sync.Mutex{}, nil, iptables, ipsets)
	if err != nil {
		return err
	}
	// The controller processes the whole state at its start and only events afterwards, so the caches must be
	// complete before it starts.
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, h := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{{pods, controller.PodEventHandler}, {namespaces, controller.NamespaceEventHandler}, {policies, controller.NetworkPolicyEventHandler}} {
		if _, err := h.informer.AddEventHandler(h.handler); err != nil {
			return err
		}
	}

	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats { // drain the heartbeats, because the controller blocks until somebody reads them
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, ctx.Done(), &running)
	return nil
}
