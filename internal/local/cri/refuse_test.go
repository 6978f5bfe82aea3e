package cri

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestInvalidSandboxesAreRefused(t *testing.T) {
	n := start(t)
	for _, test := range []struct {
		name   string
		change func(*pb.RunPodSandboxRequest)
		want   string
	}{
		{"no metadata", func(q *pb.RunPodSandboxRequest) { q.Config.Metadata = nil }, "metadata"},
		{"nothing", func(q *pb.RunPodSandboxRequest) { q.Config = nil }, "metadata"},
		{"runtime handler", func(q *pb.RunPodSandboxRequest) { q.RuntimeHandler = "kata" }, `no runtime handler "kata": remove runtimeClassName`},
		{
			"host port",
			func(q *pb.RunPodSandboxRequest) {
				q.Config.PortMappings = []*pb.PortMapping{{ContainerPort: 80, HostPort: 8080}}
			},
			"no host ports (the pod asks for 8080)",
		},
		{
			"user namespace",
			func(q *pb.RunPodSandboxRequest) {
				q.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &pb.UserNamespace{Mode: pb.NamespaceMode_POD}
			},
			"no user namespaces",
		},
		{
			"sysctl of the host",
			func(q *pb.RunPodSandboxRequest) {
				q.Config.Linux.Sysctls = map[string]string{"vm.overcommit_memory": "1"}
			},
			"sysctl vm.overcommit_memory",
		},
		{
			"sysctl of the host's network",
			func(q *pb.RunPodSandboxRequest) {
				q.Config.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
				q.Config.Linux.SecurityContext.NamespaceOptions.Network = pb.NamespaceMode_NODE
			},
			"sysctl net.ipv4.ip_forward",
		},
		{
			"sysctl that does not exist",
			func(q *pb.RunPodSandboxRequest) { q.Config.Linux.Sysctls = map[string]string{"net.no.such": "1"} },
			"sysctl net.no.such",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := &pb.RunPodSandboxRequest{Config: sandboxConfig(n, "a")}
			test.change(q)
			_, err := n.RunPodSandbox(n.ctx(), q)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if got := leftovers(t, n.cfg); len(got) != 1 || len(must(entryNames(n.cfg.sandboxes()))) > 0 {
		t.Errorf("refused sandboxes left %q", got)
	}
}

func TestInvalidContainersAreRefused(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	for _, test := range []struct {
		name   string
		change func(*pb.ContainerConfig)
		want   string
	}{
		{
			"no command",
			func(c *pb.ContainerConfig) { c.Command, c.Args = nil, []string{"--flag"} },
			`container "c" sets no command: the process runtime has no image to take an entrypoint from`,
		},
		{"no metadata", func(c *pb.ContainerConfig) { c.Metadata = nil }, "metadata"},
		{
			"image volume",
			func(c *pb.ContainerConfig) {
				c.Mounts = []*pb.Mount{{ContainerPath: "/x", Image: &pb.ImageSpec{Image: "example.com/data"}}}
			},
			`mounts the image "example.com/data"`,
		},
		{"relative mount", func(c *pb.ContainerConfig) { c.Mounts = []*pb.Mount{{ContainerPath: "x", HostPath: "/tmp"}} }, `"x" is not absolute`},
		{
			"unknown capability",
			func(c *pb.ContainerConfig) {
				c.Linux.SecurityContext.Capabilities = &pb.Capability{AddCapabilities: []string{"SYS_EVERYTHING"}}
			},
			`no capability "SYS_EVERYTHING"`,
		},
		{
			"user out of range",
			func(c *pb.ContainerConfig) { c.Linux.SecurityContext.RunAsUser = &pb.Int64Value{Value: 1 << 40} },
			"runAsUser 1099511627776 does not exist",
		},
		{"unknown user", func(c *pb.ContainerConfig) { c.Linux.SecurityContext.RunAsUsername = "t9k-nobody" }, "t9k-nobody"},
		{"CDI device", func(c *pb.ContainerConfig) { c.CDIDevices = []*pb.CDIDevice{{Name: "x"}} }, "CDI"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := script("c", "true")
			test.change(c)
			_, err := n.CreateContainer(n.ctx(), &pb.CreateContainerRequest{PodSandboxId: sb, Config: c})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if got := must(entryNames(n.cfg.containers())); len(got) > 0 {
		t.Errorf("refused containers left %v", got)
	}
}

func TestContainersThatCannotStartReportWhy(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	for _, test := range []struct {
		name   string
		change func(*pb.ContainerConfig)
		want   string
	}{
		{"too long an argument", func(c *pb.ContainerConfig) { c.Args = []string{strings.Repeat("x", 1<<18)} }, "argument list too long"},
		{"no such program", func(c *pb.ContainerConfig) { c.Command = []string{"t9k-no-such-program"} }, `"t9k-no-such-program": executable file not found in $PATH`},
		{"no such file", func(c *pb.ContainerConfig) { c.Command = []string{"/no/such/file"} }, "no such file"},
		{"not a program", func(c *pb.ContainerConfig) { c.Command = []string{"/etc/hostname"} }, "permission denied"},
		{"working directory is a file", func(c *pb.ContainerConfig) { c.WorkingDir = "/bin/sh" }, "working directory"},
		{"no such device", func(c *pb.ContainerConfig) {
			c.Devices = []*pb.Device{{HostPath: "/dev/t9k-none", ContainerPath: "/dev/x"}}
		}, "/dev/t9k-none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := script("c", "true")
			test.change(c)
			id := n.create(sb, c)
			_, err := n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: id})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			st := n.status(id)
			if st.State != pb.ContainerState_CONTAINER_EXITED || st.ExitCode != 128 || st.Reason != reasonStartError || !strings.Contains(st.Message, test.want) {
				t.Errorf("state %s, code %d, reason %s, message %q", st.State, st.ExitCode, st.Reason, st.Message)
			}
			if _, err = n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: id}); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("a second start: %v", err)
			}
		})
	}
}

func TestUnknownNamesAreNotFound(t *testing.T) {
	n := start(t)
	for _, id := range []string{"", "unknown", "../../../etc", newID()} {
		t.Run(id, func(t *testing.T) {
			for what, err := range map[string]error{
				"status of a sandbox":   second(n.PodSandboxStatus(n.ctx(), &pb.PodSandboxStatusRequest{PodSandboxId: id})),
				"status of a container": second(n.ContainerStatus(n.ctx(), &pb.ContainerStatusRequest{ContainerId: id})),
				"create":                second(n.CreateContainer(n.ctx(), &pb.CreateContainerRequest{PodSandboxId: id, Config: script("c", "true")})),
				"start":                 second(n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: id})),
				"exec":                  second(n.ExecSync(n.ctx(), &pb.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}})),
				"stats":                 second(n.ContainerStats(n.ctx(), &pb.ContainerStatsRequest{ContainerId: id})),
			} {
				if status.Code(err) != codes.NotFound {
					t.Errorf("%s: %v", what, err)
				}
			}
			for what, err := range map[string]error{
				"stop a sandbox":     second(n.StopPodSandbox(n.ctx(), &pb.StopPodSandboxRequest{PodSandboxId: id})),
				"remove a sandbox":   second(n.RemovePodSandbox(n.ctx(), &pb.RemovePodSandboxRequest{PodSandboxId: id})),
				"stop a container":   second(n.StopContainer(n.ctx(), &pb.StopContainerRequest{ContainerId: id})),
				"remove a container": second(n.RemoveContainer(n.ctx(), &pb.RemoveContainerRequest{ContainerId: id})),
			} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func TestImagesAreAllPresent(t *testing.T) {
	n := start(t)
	const name = "registry.example.com/team/train@sha256:0000"
	st, err := n.images.ImageStatus(n.ctx(), &pb.ImageStatusRequest{Image: &pb.ImageSpec{Image: name}})
	if err != nil || st.Image.Id != name || st.Image.Size == 0 {
		t.Errorf("status %v, %v", st, err)
	}
	pull, err := n.images.PullImage(n.ctx(), &pb.PullImageRequest{Image: &pb.ImageSpec{Image: name}})
	if err != nil || pull.ImageRef != name {
		t.Errorf("pull %v, %v", pull, err)
	}
	for want := 1; want >= 0; want-- {
		list, err := n.images.ListImages(n.ctx(), &pb.ListImagesRequest{})
		if err != nil || len(list.Images) != want {
			t.Errorf("list %v, %v", list, err)
		}
		if _, err := n.images.RemoveImage(n.ctx(), &pb.RemoveImageRequest{Image: &pb.ImageSpec{Image: name}}); err != nil {
			t.Error(err)
		}
	}
	fs, err := n.images.ImageFsInfo(n.ctx(), &pb.ImageFsInfoRequest{})
	if err != nil || fs.ImageFilesystems[0].FsId.Mountpoint != n.cfg.Root {
		t.Errorf("file system %v, %v", fs, err)
	}
}

func TestRuntimeIsReady(t *testing.T) {
	n := start(t)
	ready, err := n.Status(n.ctx(), &pb.StatusRequest{})
	if err != nil || len(ready.Status.Conditions) != 2 {
		t.Fatalf("%v, %v", ready, err)
	}
	for _, c := range ready.Status.Conditions {
		if !c.Status {
			t.Errorf("%s is not true", c.Type)
		}
	}
	if v, err := n.Version(n.ctx(), &pb.VersionRequest{}); err != nil || v.RuntimeName != "process" || v.RuntimeApiVersion != "v1" {
		t.Errorf("%v, %v", v, err)
	}
}

func TestInvalidConfigurationsAreRefused(t *testing.T) {
	dir := t.TempDir()
	good := Config{Socket: dir + "/s", Root: dir + "/r", Bridge: "t9test", Subnet: netip.MustParsePrefix("10.1.2.1/24")}
	for name, change := range map[string]func(*Config){
		"no subnet":        func(c *Config) { c.Subnet = netip.Prefix{} },
		"IPv6":             func(c *Config) { c.Subnet = netip.MustParsePrefix("fd00::1/64") },
		"too small":        func(c *Config) { c.Subnet = netip.MustParsePrefix("10.1.2.1/31") },
		"no bridge":        func(c *Config) { c.Bridge = "" },
		"long bridge":      func(c *Config) { c.Bridge = "sixteen-bytes-xx" },
		"no socket":        func(c *Config) { c.Socket = "" },
		"no directory":     func(c *Config) { c.Root = "" },
		"directory a file": func(c *Config) { c.Root = filepath.Join(self, "x") },
	} {
		cfg := good
		change(&cfg)
		if err := Serve(context.Background(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if exists(good.Root) {
		t.Error("a refused configuration left its directory")
	}
}
