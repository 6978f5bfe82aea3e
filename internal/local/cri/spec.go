package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// spec translates the kubelet's configuration of a container to the shim's. It fails if the configuration is invalid or
// requires a feature that this runtime does not support. It creates missing sources of mounts.
func (s *server) spec(sb *sandbox, config *pb.ContainerConfig) (*shim.Spec, error) {
	if err := refuseContainer(config); err != nil {
		return nil, err
	}
	sc := config.GetLinux().GetSecurityContext()
	pid := sc.GetNamespaceOptions().GetPid()
	out := &shim.Spec{
		Argv: append(append([]string{}, config.Command...), config.Args...), Cwd: filepath.Clean("/" + config.WorkingDir),
		TTY: config.Tty, Stdin: config.Stdin, StdinOnce: config.StdinOnce,
		Shm: filepath.Join(s.cfg.sandboxDir(sb.ID), "shm"), Hide: s.hide,
		MaskedPaths: sc.GetMaskedPaths(), ReadOnlyPaths: sc.GetReadonlyPaths(),
		HostNet: sb.HostNet, HostPID: pid == pb.NamespaceMode_NODE, Privileged: sc.GetPrivileged(),
		ReadOnlyRoot: sc.GetReadonlyRootfs(), NoNewPrivs: sc.GetNoNewPrivs(), Rootless: s.cfg.Rootless,
		OOMScoreAdj: int(config.GetLinux().GetResources().GetOomScoreAdj()),
	}
	if sb.HostIPC {
		out.Shm = "/dev/shm"
	}
	if config.LogPath != "" {
		out.LogPath = filepath.Join(sb.config.LogDirectory, config.LogPath)
	}
	var err error
	if out.DropCaps, err = droppedCapabilities(sc); err != nil {
		return nil, err
	}
	cred, home, err := credential(sc, s.ids)
	if err != nil {
		return nil, err
	}
	out.Cred = cred
	out.Env = environment(config, home, sb.hostname())
	out.Mounts, err = s.mounts(sb, config)
	return out, err
}

// refuseContainer returns an error if the container's configuration is invalid or requires a feature that this runtime
// does not support.
func refuseContainer(config *pb.ContainerConfig) error {
	name := config.GetMetadata().GetName()
	switch {
	case config.GetMetadata() == nil:
		return errors.New("the container has no metadata")
	case len(config.Command) == 0:
		return fmt.Errorf("container %q sets no command: the process runtime has no image to take an entrypoint from; "+
			"set command in the container, or use a runtime with images (--runtime containerd)", name)
	case len(config.CDIDevices) > 0:
		return fmt.Errorf("container %q requests CDI devices, which the process runtime does not support: "+
			"use a runtime with images (--runtime containerd)", name)
	}
	for _, m := range config.Mounts {
		switch {
		case m.GetImage().GetImage() != "":
			return fmt.Errorf("container %q mounts the image %q: the process runtime has no images", name, m.Image.Image)
		case len(m.UidMappings) > 0 || len(m.GidMappings) > 0:
			return fmt.Errorf("container %q requests a mount with mapped owners, which the process runtime does not support", name)
		case !filepath.IsAbs(m.ContainerPath):
			return fmt.Errorf("container %q: the mount path %q is not absolute", name, m.ContainerPath)
		}
	}
	return nil
}

// environment returns the container's environment, each variable once with its last value. PATH defaults to the
// machine's PATH, because there is no image that sets it.
func environment(config *pb.ContainerConfig, home, hostname string) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	all := []string{"PATH=" + path, "HOME=" + home, "HOSTNAME=" + hostname}
	if config.Tty {
		all = append(all, "TERM=xterm")
	}
	for _, e := range config.Envs {
		value := string(e.GetValue())
		all = append(all, e.GetKey()+"="+value)
	}
	var out []string
	index := map[string]int{}
	for _, e := range all {
		k, _, _ := strings.Cut(e, "=")
		if i, ok := index[k]; ok {
			out[i] = e
			continue
		}
		index[k] = len(out)
		out = append(out, e)
	}
	return out
}

// propagations are the mount flags of the CRI's propagation modes.
var propagations = map[pb.MountPropagation]uint64{
	pb.MountPropagation_PROPAGATION_PRIVATE:           unix.MS_PRIVATE,
	pb.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: unix.MS_SLAVE,
	pb.MountPropagation_PROPAGATION_BIDIRECTIONAL:     unix.MS_SHARED,
}

// mounts lists the mounts of a container, outer paths first: /etc/hostname and /etc/resolv.conf of the pod, the
// kubelet's mounts such as volumes, and the devices. A pod in the host's network without DNS servers of its own keeps
// the host's resolv.conf. mounts creates missing sources of the kubelet's mounts as directories.
func (s *server) mounts(sb *sandbox, config *pb.ContainerConfig) ([]shim.Mount, error) {
	dir := s.cfg.sandboxDir(sb.ID)
	out := []shim.Mount{{Src: filepath.Join(dir, "hostname"), Dst: "/etc/hostname", Propagation: unix.MS_PRIVATE}}
	if !sb.HostNet || len(sb.config.GetDnsConfig().GetServers()) > 0 {
		out = append(out, shim.Mount{Src: filepath.Join(dir, "resolv.conf"), Dst: "/etc/resolv.conf", Propagation: unix.MS_PRIVATE})
	}
	for _, m := range config.Mounts {
		// A missing directory of a hostPath volume is created, as other runtimes do.
		if err := os.MkdirAll(m.HostPath, 0o755); err != nil && !exists(m.HostPath) {
			return nil, fmt.Errorf("making the source of the mount at %s: %w", m.ContainerPath, err)
		}
		out = append(out, shim.Mount{
			Src: m.HostPath, Dst: filepath.Clean(m.ContainerPath), ReadOnly: m.Readonly, RecursiveReadOnly: m.RecursiveReadOnly,
			Propagation: propagations[m.Propagation],
		})
	}
	for _, d := range config.Devices {
		out = append(out, shim.Mount{Src: d.HostPath, Dst: filepath.Clean(d.ContainerPath), Propagation: unix.MS_PRIVATE})
	}
	// The order by depth keeps a mount from hiding another one inside it. The sort is stable, so the later of two
	// mounts at one path takes precedence.
	sort.SliceStable(out, func(i, j int) bool { return strings.Count(out[i].Dst, "/") < strings.Count(out[j].Dst, "/") })
	return out, nil
}

// exists reports whether there is a file at p.
func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}
