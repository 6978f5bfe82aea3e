package local

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
)

// firstPort and lastPort bound the range of ports that a cluster may use. The range is below Linux's default range for
// outgoing connections, so that a free port stays free until its owner listens.
const (
	firstPort = 20000
	lastPort  = 31999
)

// archiveServer is the owner of the port at which the console serves the archive to the users of the cluster.
const archiveServer = "archive"

// portOwners are the keys of Config.Ports. The operator also listens on the port of Webhook, and the console on the
// port of archiveServer.
var portOwners = []string{APIServer, ControllerManager, Scheduler, Operator, Webhook, Console, archiveServer}

// choosePorts assigns a free port to each owner that has none or whose port is taken.
func choosePorts(ports map[string]int) error {
	taken, end := map[int]bool{}, time.Now().Add(endOfProcess)
	for _, owner := range portOwners {
		if p := ports[owner]; p != 0 && !taken[p] && portIsFree(p, end) {
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

// freePort returns a random port that is free and not in taken. It fails if 1,000 random ports are all in use.
func freePort(taken map[int]bool) (int, error) {
	for range 1000 {
		p := firstPort + rand.IntN(lastPort-firstPort+1)
		if !taken[p] && portIsFree(p, time.Time{}) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("no free port found on 127.0.0.1 between %d and %d", firstPort, lastPort)
}

// portIsFree reports whether this process can listen on a port of 127.0.0.1 and no other cluster has reserved the port.
// If the port is reserved, it waits until end for the reservation to be released.
func portIsFree(p int, end time.Time) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
	if err != nil {
		return false
	}
	if l.Close() != nil {
		return false
	}
	reservation, err := reservePort(p, end)
	if err != nil {
		return false
	}
	return reservation.Close() == nil
}

// reservePort reserves a port, so that no other cluster chooses it until the result is closed or this process exits. A
// reservation is an abstract socket: it belongs to a network namespace, as ports do, and leaves no file behind.
//
// The kernel may already have released the lock of a killed process of the same cluster, but not yet its reservations.
// Therefore reservePort retries until end.
func reservePort(p int, end time.Time) (r io.Closer, err error) {
	for {
		r, err = net.Listen("unix", "@t9k-local-port-"+strconv.Itoa(p))
		if err == nil || time.Now().After(end) {
			return r, err
		}
		time.Sleep(endOfProcess / 100)
	}
}

// endOfProcess is how long the kernel may take to close the files of a process that has exited.
const endOfProcess = time.Second

// takePorts reserves the ports of a cluster. If another cluster that started at the same time has reserved one of them,
// takePorts chooses another port and saves the configuration. The caller must call release when the cluster has ended.
func (d Dir) takePorts(c *Config) (release func() error, err error) {
	const attempts = 5
	for range attempts {
		if release, err = reservePorts(c.Ports); err == nil {
			return release, nil
		}
		if err := choosePorts(c.Ports); err != nil {
			return nil, err
		}
		if err := d.saveConfig(c); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// reservePorts reserves the ports of a running cluster. Otherwise another cluster could choose the port of a component
// that is stopped or restarting, and the component could not listen on it again.
func reservePorts(ports map[string]int) (release func() error, err error) {
	var held []io.Closer
	release = func() error {
		var errs []error
		for _, r := range held {
			errs = append(errs, r.Close())
		}
		return errors.Join(errs...)
	}
	end := time.Now().Add(endOfProcess)
	for _, owner := range slices.Sorted(maps.Keys(ports)) {
		r, err := reservePort(ports[owner], end)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("another cluster has taken port %d, which was chosen for %s: %w", ports[owner], owner, err), release())
		}
		held = append(held, r)
	}
	return release, nil
}

// bridgeName returns the name of the cluster's network device, derived from the directory's path. It has at most 15
// characters, the limit of Linux.
func bridgeName(d Dir) string {
	sum := sha256.Sum256([]byte(d))
	return fmt.Sprintf("t9k-%x", sum[:5])
}

// podRange and serviceRange contain the networks of all clusters. A cluster gets the /24 with the same index from each
// range.
var (
	podRange     = netip.MustParsePrefix("10.160.0.0/11")
	serviceRange = netip.MustParsePrefix("10.192.0.0/11")
)

// networkCount is the number of /24 networks in a /11.
const networkCount = 1 << 13

// chooseNetworks returns random networks for pods and Services that do not overlap the machine's routes, as
// pickNetworks defines it.
func chooseNetworks() (pods, services netip.Prefix, err error) {
	used, err := hostNetworks()
	if err != nil {
		return pods, services, err
	}
	pods, services, ok := pickNetworks(used, rand.IntN)
	if !ok {
		return pods, services, errors.New("no network between 10.160.0.0 and 10.191.255.255 is free for pods and Services: the host has routes to all that were tried")
	}
	return pods, services, nil
}

// pickNetworks draws up to 200 indices with intN until neither network overlaps one in used. A second attempt ignores
// networks in used that are larger than a /12, such as a company's 10.0.0.0/8, because the more specific route of the
// cluster takes precedence. ok is false if both attempts fail.
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

// overlapsAny reports whether p overlaps a prefix in used that has at least shortest bits.
func overlapsAny(used []netip.Prefix, p netip.Prefix, shortest int) bool {
	for _, u := range used {
		if u.Bits() >= shortest && u.Overlaps(p) {
			return true
		}
	}
	return false
}

// subnet returns the nth /24 of a range, counted from 0.
func subnet(r netip.Prefix, n int) netip.Prefix {
	a := r.Addr().As4()
	a[1] += byte(n >> 8)
	a[2] = byte(n)
	return netip.PrefixFrom(netip.AddrFrom4(a), 24)
}

// hostNetworks lists the IPv4 networks to which the machine has a route, except the default route.
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
