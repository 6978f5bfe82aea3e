package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
)

// Runtime is the container runtime of a cluster.
type Runtime string

const (
	// RuntimeProcess runs containers without images, as processes that see the machine's own files.
	RuntimeProcess Runtime = "process"
	// RuntimeContainerd runs containers from images through a containerd that already runs on the machine.
	RuntimeContainerd Runtime = "containerd"
)

// DefaultContainerdSocket is the path of containerd's socket if the options do not name another one.
const DefaultContainerdSocket = "/run/containerd/containerd.sock"

// Names of the components of a cluster, as the command line and the logs show them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	CRDs              = "crds"      // not a program: the step that installs the repository's CRDs
	Webhook           = "webhook"   // not a program: the step that registers the operator's webhook with the API server
	LostPods          = "lost-pods" // not a program: the step that fails pods lost with the last machine process
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	DNS               = "dns"
	Operator          = "operator"
	Console           = "console"
)

// AllComponents lists every component that `up` runs, in the order of their dependencies. They stop in the reverse
// order. The controllers and the scheduler stop before the kubelet, so that they do not create or bind pods while it
// terminates the pods of the node. DNS stops after the kubelet, so that pods can resolve names until they terminate.
func AllComponents() []string {
	return []string{Etcd, APIServer, CRDs, Webhook, LostPods, DNS, Kubelet, ControllerManager, Scheduler, Operator, Console}
}

// BareComponents lists the components of a cluster without TensorStack Batch, which can then be installed as in any
// other Kubernetes cluster. Its scheduler is the plain kube-scheduler.
func BareComponents() []string {
	return slices.DeleteFunc(AllComponents(), func(c string) bool { return slices.Contains([]string{CRDs, Webhook, Operator, Console}, c) })
}

// Options are the settings that can change from one start of a cluster to the next.
type Options struct {
	// Components are the components to run. Empty means AllComponents.
	Components []string `json:"components,omitempty"`
	// Runtime is the container runtime. The default is RuntimeProcess.
	Runtime Runtime `json:"runtime,omitempty"`
	// ContainerdSocket is the path of containerd's socket under RuntimeContainerd. The default is
	// DefaultContainerdSocket.
	ContainerdSocket string `json:"containerdSocket,omitempty"`
	// Fsync makes etcd wait for the disk on each write. Without it, a crash of the whole machine can lose the last
	// writes, but a crash of a process loses nothing.
	Fsync bool `json:"fsync,omitempty"`
	// AuditPolicy is the path of an audit policy file. If it is set, the API server writes Dir.AuditLog.
	AuditPolicy string `json:"auditPolicy,omitempty"`
	// ExtraArgs are additional command-line arguments by component. They come after the standard arguments.
	ExtraArgs map[string][]string `json:"extraArgs,omitempty"`
	// Settings are additional fields of the operator's configuration and of the arguments of the scheduler's plugin, by
	// component, as the texts of OperatorSettings and SchedulerSettings.
	Settings map[string][]string `json:"settings,omitempty"`
	// Programs are the paths of programs that run components instead of this binary, by component. They take the same
	// arguments.
	Programs map[string]string `json:"programs,omitempty"`
}

// complete sets the defaults of fields that are empty.
func (o *Options) complete() {
	if len(o.Components) == 0 {
		o.Components = AllComponents()
	}
	if o.Runtime == "" {
		o.Runtime = RuntimeProcess
	}
	if o.ContainerdSocket == "" {
		o.ContainerdSocket = DefaultContainerdSocket
	}
}

// validate returns an error if a component or the runtime is unknown.
func (o *Options) validate() error {
	for _, c := range o.Components {
		if !slices.Contains(AllComponents(), c) {
			return fmt.Errorf("there is no component %q", c)
		}
	}
	if o.Runtime != RuntimeProcess && o.Runtime != RuntimeContainerd {
		return fmt.Errorf("there is no runtime %q: use %s or %s", o.Runtime, RuntimeProcess, RuntimeContainerd)
	}
	return nil
}

// Config is the persistent configuration of a cluster: its options, and the ports and addresses that were chosen for
// it.
type Config struct {
	Options
	// Rootless reports whether the cluster runs in a user namespace.
	Rootless bool `json:"rootless,omitempty"`
	// Ports are the ports on 127.0.0.1, by the name of their owner (portOwners).
	Ports map[string]int `json:"ports"`
	// Bridge is the name of the network device that connects the pods. Its address is the first address of Pods.
	Bridge string `json:"bridge"`
	// Pods and Services are the address ranges of pods and Services, each a /24.
	Pods     netip.Prefix `json:"pods"`
	Services netip.Prefix `json:"services"`
}

// hasNode reports whether the cluster runs pods, and so needs mounts and a network.
func (c *Config) hasNode() bool { return slices.Contains(c.Components, Kubelet) }

// has reports whether the cluster runs a component.
func (c *Config) has(component string) bool { return slices.Contains(c.Components, component) }

// gateway returns the address of the node and the DNS server. Pods also reach the API server at this address.
func (c *Config) gateway() netip.Addr { return c.Pods.Addr().Next() }

// apiService returns the ClusterIP of the Service "kubernetes", the first address of the range.
func (c *Config) apiService() netip.Addr { return c.Services.Addr().Next() }

// Load reads the cluster's configuration. It returns an empty Config if the directory has no configuration.
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
		return nil, fmt.Errorf("reading %s: %w; `t9k local reset%s` removes the cluster", d.configFile(), err, d.NameFlag())
	}
	return c, nil
}

// saveConfig writes the cluster's configuration.
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

// Configure prepares the directory for a start with these options. It chooses ports and addresses the first time, and
// replaces a port that another program has taken in the meantime. It fails if the cluster is to run pods and this user
// cannot run pods on this machine. It must not be called while the cluster runs.
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
	if err := d.makeConsoleKey(); err != nil {
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

// LogNames lists the names that Dir.LogFile accepts: the components that are programs, and the machine process.
func LogNames() []string {
	names := slices.DeleteFunc(AllComponents(), isStep)
	return append(names, machineLog)
}

// isStep reports whether a component is a step and not a program.
func isStep(component string) bool {
	return slices.Contains([]string{CRDs, Webhook, LostPods}, component)
}
