package cri

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ensureBridge creates the bridge and its address if they are missing. It uses a bridge of another program only if that
// bridge has the address. Cleanup never removes such a bridge.
func ensureBridge(cfg Config) error {
	address := &netlink.Addr{IPNet: ipNet(cfg.Subnet)}
	link, err := netlink.LinkByName(cfg.Bridge)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		if link, err = addBridge(cfg); err != nil {
			return err
		}
	case err != nil:
		return err
	case link.Type() != "bridge":
		return fmt.Errorf("there is a network device of this name and of type %s", link.Type())
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("listing its addresses: %w", err)
	}
	for _, a := range addresses {
		if a.IPNet.String() == address.IPNet.String() {
			return netlink.LinkSetUp(link)
		}
	}
	if mine, err := isOwnBridge(cfg, link); err != nil || !mine {
		return errors.Join(err, fmt.Errorf("it exists without the address %s and is not ours to change", cfg.Subnet))
	}
	// This comes before the address, so that a bridge with the address has the setting even if this program was killed.
	if err := disableLinkLocal(link); err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, address); err != nil {
		return fmt.Errorf("adding the address %s: %w", cfg.Subnet, err)
	}
	return netlink.LinkSetUp(link)
}

// addBridge creates the bridge with a random hardware address, which it first writes to a file. The address identifies
// the bridge as one that this runtime created. The address is also fixed because a bridge without a fixed address takes
// the address of a port, and the pods' neighbour tables would become wrong when that address changes.
func addBridge(cfg Config) (netlink.Link, error) {
	mac := make(net.HardwareAddr, 6)
	_, _ = rand.Read(mac)
	mac[0] = mac[0]&^1 | 2 // a unicast address that is locally administered
	if err := writeFile(bridgeFile(cfg), []byte(mac.String())); err != nil {
		return nil, err
	}
	a := netlink.NewLinkAttrs()
	a.Name, a.HardwareAddr = cfg.Bridge, mac
	snooping := false // no program here uses multicast groups
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a, MulticastSnooping: &snooping}); err != nil {
		return nil, fmt.Errorf("making it: %w", err)
	}
	return netlink.LinkByName(cfg.Bridge)
}

// disableLinkLocal keeps the kernel from giving a device of the host an IPv6 address when the device comes up. Nothing
// uses the address, but each change of the host's addresses makes browsers on the host abort their requests
// (ERR_NETWORK_CHANGED in Chromium). The device must be down.
func disableLinkLocal(link netlink.Link) error {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	err := netlink.LinkSetIP6AddrGenMode(link, none)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // EAFNOSUPPORT: the kernel has no IPv6
		return fmt.Errorf("disabling the IPv6 address of %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// bridgeFile returns the path of the file with the bridge's hardware address.
func bridgeFile(cfg Config) string { return filepath.Join(cfg.Root, "bridge") }

// isOwnBridge reports whether link is the bridge that addBridge created.
func isOwnBridge(cfg Config, link netlink.Link) (bool, error) {
	b, err := os.ReadFile(bridgeFile(cfg))
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	mac, err := net.ParseMAC(string(b))
	return err == nil && bytes.Equal(mac, link.Attrs().HardwareAddr), nil
}

// ipNet converts an IPv4 prefix.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// nextAddress returns the first unused address after last. It cycles through the whole subnet, so that an address is
// reused as late as possible, because clients may still use an old one.
func nextAddress(subnet netip.Prefix, last netip.Addr, used map[netip.Addr]string) (netip.Addr, error) {
	first := binary.BigEndian.Uint32(subnet.Masked().Addr().AsSlice())
	size := uint32(1) << (32 - subnet.Bits())
	offset := binary.BigEndian.Uint32(last.AsSlice()) - first
	for range size {
		offset = (offset + 1) % size
		if offset == 0 || offset == size-1 { // the network's and the broadcast address
			continue
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], first+offset)
		if a := netip.AddrFrom4(b); a != subnet.Addr() && used[a] == "" {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all addresses of %s are in use", subnet.Masked())
}

// vethName returns the name of a sandbox's network device on the bridge.
func vethName(sandbox string) string { return "v" + sandbox[:12] }

// connectToBridge connects the sandbox's network namespace to the bridge by a veth pair.
func connectToBridge(cfg Config, id, address string) error {
	bridge, err := netlink.LinkByName(cfg.Bridge)
	if err != nil {
		return err
	}
	ns, err := os.Open(filepath.Join(cfg.sandboxDir(id), "net"))
	if err != nil {
		return err
	}
	defer ns.Close()
	a := netlink.NewLinkAttrs()
	a.Name, a.MasterIndex = vethName(id), bridge.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: a, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.Fd())}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("making a veth pair: %w", err)
	}
	if err := disableLinkLocal(veth); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("setting up %s: %w", a.Name, err)
	}
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return configure(cfg.Subnet, net.ParseIP(address))
	})
}

// configure sets up the devices, the address and the default route of the calling thread's network namespace.
func configure(subnet netip.Prefix, address net.IP) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting up lo: %w", err)
	}
	eth, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := h.AddrAdd(eth, &netlink.Addr{IPNet: &net.IPNet{IP: address, Mask: ipNet(subnet).Mask}}); err != nil {
		return fmt.Errorf("adding the address %s: %w", address, err)
	}
	if err := h.LinkSetUp(eth); err != nil {
		return fmt.Errorf("setting up eth0: %w", err)
	}
	if err := h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: subnet.Addr().AsSlice()}); err != nil {
		return fmt.Errorf("adding the default route: %w", err)
	}
	return nil
}

// removeVeth deletes the sandbox's device on the bridge, and with it the peer in the sandbox. It does nothing if there
// is no device.
func removeVeth(id string) error {
	link, err := netlink.LinkByName(vethName(id))
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}
