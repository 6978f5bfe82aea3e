package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"tensorstack.dev/batch/internal/local/containerd"
	"tensorstack.dev/batch/internal/local/cri"
	"tensorstack.dev/batch/internal/local/logind"
)

// RuntimeConfig returns the configuration of the process runtime, which runs in the kubelet's process.
func RuntimeConfig(d Dir, c *Config) cri.Config {
	return cri.Config{
		Socket: d.runtimeSocket(),
		Root:   d.join("cri"),
		Mask:   string(d),
		Bridge: c.Bridge,
		Subnet: netip.PrefixFrom(c.gateway(), c.Pods.Bits()),

		Rootless: c.Rootless,
	}
}

// removeNode kills the pods of a cluster whose kubelet does not run, and removes the cluster's network devices.
func removeNode(ctx context.Context, d Dir, c *Config) error {
	if c.Runtime == RuntimeProcess {
		return cri.Cleanup(ctx, RuntimeConfig(d, c))
	}
	return errors.Join(containerd.RemovePods(ctx, c.ContainerdSocket, d.podLogs()), removeDevice(c))
}

// prepareContainerd checks that the cluster can use the machine's containerd, and creates the network device with the
// node's address. containerd sets up the network of the pods.
func prepareContainerd(ctx context.Context, d Dir, c *Config) error {
	if c.Rootless {
		return errors.New("--runtime containerd needs root: pods in a user namespace cannot be the machine's containerd's")
	}
	if err := containerd.Check(ctx, c.ContainerdSocket, d.podLogs()); err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = c.Bridge
	device := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(device); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making the node's network device: %w", err)
	}
	link, err := netlink.LinkByName(c.Bridge)
	if err != nil {
		return fmt.Errorf("looking for the node's network device: %w", err)
	}
	address := &net.IPNet{IP: c.gateway().AsSlice(), Mask: net.CIDRMask(c.Pods.Bits(), 32)}
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("giving the node its address: %w", err)
	}
	return netlink.LinkSetUp(link)
}

// removeDevice removes the network device that prepareContainerd created.
func removeDevice(c *Config) error {
	link, err := netlink.LinkByName(c.Bridge)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the node's network device: %w", err)
	}
	return netlink.LinkDel(link)
}

// podLogs returns the path of the directory of the containers' logs.
func (d Dir) podLogs() string { return d.join("podlogs") }

func (d Dir) runtimeSocket() string { return d.join("cri.sock") }

func (d Dir) logindSocket() string { return d.join("logind.sock") }

// ContainerLogs returns the path of the directory in which the kubelet links the containers' logs, instead of
// /var/log/containers.
func (d Dir) ContainerLogs() string { return d.join("containers") }

func (d Dir) kubeletRoot() string { return d.join("kubelet") }

// resolvConf returns the path of the resolv.conf of pods with the DNS policy Default. It names the cluster's DNS
// server, because pods may be unable to reach the machine's name servers. The DNS server forwards questions to those.
func (d Dir) resolvConf() string { return d.join("resolv.conf") }

// kubeletArgs returns the kubelet's command-line arguments.
func kubeletArgs(d Dir, c *Config) []string {
	return []string{"kubelet",
		"--config=" + d.join("kubelet.yaml"),
		"--kubeconfig=" + d.componentKubeconfig(Kubelet),
		"--root-dir=" + d.kubeletRoot(),
		"--cert-dir=" + d.join("pki"),
		"--hostname-override=" + NodeName,
		"--node-ip=" + c.gateway().String(),
	}
}

// kubeletEnv returns the kubelet's additional environment: the cluster's directory, and the D-Bus socket at which the
// kubelet learns of the cluster's shutdown.
func kubeletEnv(d Dir) []string {
	return []string{DirVariable + "=" + string(d), "DBUS_SYSTEM_BUS_ADDRESS=" + logind.Address(d.logindSocket())}
}

// maxGrace is the longest grace period that the kubelet gives a pod during a shutdown.
const maxGrace = 24 * time.Hour

// writeKubeletConfig writes the kubelet's configuration file and the pods' resolv.conf. The kubelet does not change the
// firewall. It does not manage cgroups either, so it enforces no resource limits. It does not evict pods when the disk
// is full, because the disk belongs to the user.
func writeKubeletConfig(d Dir, c *Config) error {
	endpoint := d.runtimeSocket()
	if c.Runtime == RuntimeContainerd {
		endpoint = c.ContainerdSocket
	}
	config := map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"address":                  c.gateway().String(),
		"port":                     kubeletPort,
		"readOnlyPort":             0,
		"healthzPort":              0,
		"containerRuntimeEndpoint": "unix://" + endpoint,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": false},
			"x509":      map[string]any{"clientCAFile": d.certFile("ca")},
		},
		"authorization":     map[string]any{"mode": "AlwaysAllow"}, // for clients with a certificate
		"tlsCertFile":       d.certFile(kubeletServing),
		"tlsPrivateKeyFile": d.keyFile(kubeletServing),
		"clusterDNS":        []string{c.gateway().String()},
		"resolvConf":        d.resolvConf(),
		// The gate makes the kubelet ignore operations that the kernel denies in a user namespace.
		"featureGates":                map[string]bool{"KubeletInUserNamespace": c.Rootless},
		"clusterDomain":               clusterDomain,
		"podLogsDir":                  d.podLogs(),
		"volumePluginDir":             d.join("kubelet", "volumeplugins"),
		"failSwapOn":                  false,
		"failCgroupV1":                false,
		"cgroupsPerQOS":               false,
		"cgroupDriver":                "cgroupfs",
		"enforceNodeAllocatable":      []string{},
		"makeIPTablesUtilChains":      false,
		"imageGCHighThresholdPercent": 100,
		"evictionHard":                map[string]string{"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "memory.available": "1Mi"},
		"maxPods":                     250,
		"serializeImagePulls":         false,
		"registryPullQPS":             0,
		"eventRecordQPS":              0,
		"kubeAPIQPS":                  500,
		"kubeAPIBurst":                1000,
		"nodeStatusUpdateFrequency":   "10s",
		// All pods terminate at the same time with their own grace periods. The machine process limits the total.
		"shutdownGracePeriodByPodPriority": []any{map[string]any{"priority": 0, "shutdownGracePeriodSeconds": int(maxGrace.Seconds())}},
	}
	data, err := json.MarshalIndent(config, "", "  ") // JSON is YAML
	if err != nil {
		return err
	}
	if err := writeFile(d.resolvConf(), []byte("nameserver "+c.gateway().String()+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing resolv.conf: %w", err)
	}
	if err := writeFile(d.join("kubelet.yaml"), data, 0o600); err != nil {
		return fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	return nil
}
