package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
)

// Runtime is what runs the containers.
type Runtime string

const (
	// RuntimeProcess runs containers as processes of the host's own file system, without images.
	RuntimeProcess Runtime = "process"
	// RuntimeContainerd runs containers from images through a containerd that already runs on the host.
	RuntimeContainerd Runtime = "containerd"
)

// DefaultContainerdSocket is where containerd listens unless told otherwise.
const DefaultContainerdSocket = "/run/containerd/containerd.sock"

// The programs of a cluster, by the names that the command line and the logs use.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	CRDs              = "crds"      // not a program: the step that installs the repository's CRDs
	Webhook           = "webhook"   // not a program: the step that has the API server call the operator's webhook
	LostPods          = "lost-pods" // not a program: the step that fails the pods which an earlier end of the node took along
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	DNS               = "dns"
	Operator          = "operator"
)

// WholePlane lists everything that `up` runs, in the order of their needs. It ends in the reverse order: nothing creates or binds a
// pod any more while the kubelet ends those that run, and they find each other by their names until then.
func WholePlane() []string {
	return []string{Etcd, APIServer, CRDs, Webhook, LostPods, DNS, Kubelet, ControllerManager, Scheduler, Operator}
}

// Options are what may differ from one start of a cluster to the next.
type Options struct {
	// Components are those to run; empty means all of WholePlane.
	Components []string `json:"components,omitempty"`
	// Runtime is by default RuntimeProcess.
	Runtime Runtime `json:"runtime,omitempty"`
	// ContainerdSocket is the path of containerd's socket under RuntimeContainerd; by default
	// DefaultContainerdSocket.
	ContainerdSocket string `json:"containerdSocket,omitempty"`
	// Fsync makes etcd wait for the disk on each write. Without it a crash of the whole machine may lose the last
	// writes; a crash of any process loses nothing.
	Fsync bool `json:"fsync,omitempty"`
	// AuditPolicy is the path of an audit policy file; with it the API server writes Dir.AuditLog.
	AuditPolicy string `json:"auditPolicy,omitempty"`
	// ExtraArgs are further arguments by component, after those that it is given anyway.
	ExtraArgs map[string][]string `json:"extraArgs,omitempty"`
}

func (o *Options) complete() {
	if len(o.Components) == 0 {
		o.Components = WholePlane()
	}
	if o.Runtime == "" {
		o.Runtime = RuntimeProcess
	}
	if o.ContainerdSocket == "" {
		o.ContainerdSocket = DefaultContainerdSocket
	}
}

func (o *Options) validate() error {
	for _, c := range o.Components {
		if !slices.Contains(WholePlane(), c) {
			return fmt.Errorf("there is no component %q", c)
		}
	}
	if o.Runtime != RuntimeProcess && o.Runtime != RuntimeContainerd {
		return fmt.Errorf("there is no runtime %q: use %s or %s", o.Runtime, RuntimeProcess, RuntimeContainerd)
	}
	return nil
}

// Config is a cluster's options and what was chosen for it when it was made; it is kept in its directory.
type Config struct {
	Options
	// Rootless says that the cluster is in a user namespace.
	Rootless bool `json:"rootless,omitempty"`
	// Ports on 127.0.0.1 by component.
	Ports map[string]int `json:"ports"`
	// Bridge is the network device that joins the pods; its address is the first of Pods.
	Bridge string `json:"bridge"`
	// Pods and Services are the ranges of their addresses, each a /24 of its own.
	Pods     netip.Prefix `json:"pods"`
	Services netip.Prefix `json:"services"`
}

// hasNode tells whether pods run, which takes mounts and a network.
func (c *Config) hasNode() bool { return slices.Contains(c.Components, Kubelet) }

// gateway is the address of the node, the DNS server and, for pods, the API server.
func (c *Config) gateway() netip.Addr { return c.Pods.Addr().Next() }

// apiService is the ClusterIP of the service "kubernetes", the first of its range.
func (c *Config) apiService() netip.Addr { return c.Services.Addr().Next() }

// Load reads the directory's configuration, or returns an empty one when there is none.
func (d Dir) Load() (*Config, error) {
	c := &Config{Ports: map[string]int{}}
	data, err := os.ReadFile(d.configFile())
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's configuration: %w", err)
	}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("reading %s: %w; `t9k local reset` removes the cluster", d.configFile(), err)
	}
	return c, nil
}

func (d Dir) saveConfig(c *Config) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(d.configFile(), data, 0o600); err != nil {
		return fmt.Errorf("writing the cluster's configuration: %w", err)
	}
	return nil
}

// Configure makes the directory ready for a start with these options: ports and addresses are chosen the first time,
// and a port again when somebody else took it in the meantime. It fails if pods are to run, and this machine does not
// let this user run any. It must not be called while the cluster runs.
func (d Dir) Configure(o Options) (*Config, error) {
	o.complete()
	if err := o.validate(); err != nil {
		return nil, err
	}
	rootless := false
	if slices.Contains(o.Components, Kubelet) {
		var err error
		if rootless, err = needsUserNamespace(); err != nil {
			return nil, err
		}
	}
	if err := d.create(); err != nil {
		return nil, err
	}
	c, err := d.Load()
	if err != nil {
		return nil, err
	}
	c.Options, c.Rootless = o, rootless
	if err := choosePorts(c.Ports); err != nil {
		return nil, err
	}
	c.Bridge = bridgeName(d)
	if !c.Pods.IsValid() || !c.Services.IsValid() {
		if c.Pods, c.Services, err = chooseNetworks(); err != nil {
			return nil, err
		}
	}
	return c, d.saveConfig(c)
}

// LogNames lists what Dir.LogFile has a file for: the programs, and the machine process.
func LogNames() []string {
	names := slices.DeleteFunc(WholePlane(), isStep)
	return append(names, machineLog)
}

// isStep tells whether a component is not a program.
func isStep(component string) bool {
	return slices.Contains([]string{CRDs, Webhook, LostPods}, component)
}
