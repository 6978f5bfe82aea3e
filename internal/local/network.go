package local

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
)

// Ports are taken from below the range out of which Linux serves outgoing connections, so that one which is free now
// stays so until its owner listens on it.
const (
	firstPort = 20000
	lastPort  = 31999
)

// portOwners are the components that listen on a port of 127.0.0.1. That of Webhook is another one of the operator.
var portOwners = []string{APIServer, ControllerManager, Scheduler, Operator, Webhook}

// choosePorts fills in a free port for each owner that has none or whose port is no longer free.
func choosePorts(ports map[string]int) error {
	taken := map[int]bool{}
	for _, owner := range portOwners {
		if p := ports[owner]; p != 0 && !taken[p] && portIsFree(p) {
			taken[p] = true
			continue
		}
		p, err := freePort(taken)
		if err != nil {
			return err
		}
		ports[owner], taken[p] = p, true
	}
	return nil
}

func freePort(taken map[int]bool) (int, error) {
	for range 1000 {
		p := firstPort + rand.IntN(lastPort-firstPort+1)
		if !taken[p] && portIsFree(p) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("no free port found on 127.0.0.1 between %d and %d", firstPort, lastPort)
}

func portIsFree(p int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// bridgeName is a name for the network device that no other directory has; Linux allows 15 characters.
func bridgeName(d Dir) string {
	sum := sha256.Sum256([]byte(d))
	return fmt.Sprintf("t9k-%x", sum[:5])
}

// Pods and services get the /24 of the same number of these two ranges.
var (
	podRange     = netip.MustParsePrefix("10.160.0.0/11")
	serviceRange = netip.MustParsePrefix("10.192.0.0/11")
)

const networkCount = 1 << 13 // of /24 in a /11

// chooseNetworks picks a pair of networks that the host does not know any way to.
func chooseNetworks() (pods, services netip.Prefix, err error) {
	used, err := hostNetworks()
	if err != nil {
		return pods, services, err
	}
	pods, services, ok := pickNetworks(used, rand.IntN)
	if !ok {
		return pods, services, errors.New("no free network found for pods between 10.160.0.0 and 10.191.255.255: the host has routes to all of it")
	}
	return pods, services, nil
}

// pickNetworks draws numbers by intN until neither of the two networks overlaps one in use. When a route covers
// everything, as that of a company network of 10.0.0.0/8 would, the more specific one wins anyhow: such are left out
// of account in a second attempt.
func pickNetworks(used []netip.Prefix, intN func(int) int) (pods, services netip.Prefix, ok bool) {
	for _, shortest := range []int{0, 12} {
		for range 200 {
			n := intN(networkCount)
			pods, services = subnet(podRange, n), subnet(serviceRange, n)
			if !overlapsAny(used, pods, shortest) && !overlapsAny(used, services, shortest) {
				return pods, services, true
			}
		}
	}
	return pods, services, false
}

// overlapsAny looks at those of used whose prefix has at least the length shortest.
func overlapsAny(used []netip.Prefix, p netip.Prefix, shortest int) bool {
	for _, u := range used {
		if u.Bits() >= shortest && u.Overlaps(p) {
			return true
		}
	}
	return false
}

// subnet is the nth /24 of a range.
func subnet(r netip.Prefix, n int) netip.Prefix {
	a := r.Addr().As4()
	a[1] += byte(n >> 8)
	a[2] = byte(n)
	return netip.PrefixFrom(netip.AddrFrom4(a), 24)
}

// hostNetworks lists the IPv4 networks that the host has addresses in or routes to, without the default route.
func hostNetworks() ([]netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing the host's routes: %w", err)
	}
	var used []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if p, err := netip.ParsePrefix(r.Dst.String()); err == nil && p.Bits() > 0 {
			used = append(used, p)
		}
	}
	return used, nil
}
