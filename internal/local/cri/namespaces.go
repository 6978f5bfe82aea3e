package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// onThread runs f on an OS thread that ends afterwards, so that f can change the thread's namespaces.
func onThread(f func() error) error {
	c := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread must keep its namespaces: it never ends, and /proc/self shows them to the whole program.
			// While this goroutine occupies the main thread, the nested call gets another thread.
			defer runtime.UnlockOSThread()
			c <- onThread(f)
			return
		}
		c <- f() // the thread stays locked, so the Go runtime ends it with the goroutine
	}()
	return <-c
}

// namespace is a kind of namespace that a sandbox holds, with its name in /proc/PID/ns.
type namespace struct {
	name string
	flag int
}

// sandboxNamespaces are the namespaces that the containers of a sandbox share.
var sandboxNamespaces = []namespace{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"ipc", unix.CLONE_NEWIPC}}

// namespaces lists the namespaces that the sandbox does not share with the host.
func (st sandboxState) namespaces() []namespace {
	var out []namespace
	for _, n := range sandboxNamespaces {
		if st.HostNet && n.name != "ipc" || st.HostIPC && n.name == "ipc" {
			continue
		}
		out = append(out, n)
	}
	return out
}

// makeNamespaces creates the sandbox's namespaces and mounts them on files in dir. The mounts keep the namespaces
// without any process. makeNamespaces also sets the sysctls and, in a UTS namespace, the host name.
func makeNamespaces(dir string, kinds []namespace, hostname string, sysctls map[string]string) error {
	return onThread(func() error {
		flags, uts := 0, false
		for _, n := range kinds {
			flags |= n.flag
			uts = uts || n.name == "uts"
		}
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("making namespaces: %w", err)
		}
		for _, n := range kinds {
			if err := bindNamespace("/proc/thread-self/ns/"+n.name, filepath.Join(dir, n.name)); err != nil {
				return fmt.Errorf("keeping the %s namespace: %w", n.name, err)
			}
		}
		for k, v := range sysctls {
			if err := os.WriteFile("/proc/sys/"+strings.ReplaceAll(k, ".", "/"), []byte(v), 0o644); err != nil {
				return fmt.Errorf("sysctl %s: %w", k, err)
			}
		}
		if uts {
			return unix.Sethostname([]byte(hostname))
		}
		return nil
	})
}

// bindNamespace mounts a namespace on a new file.
func bindNamespace(ns, file string) error {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	return unix.Mount(ns, file, "", unix.MS_BIND, "")
}

// isNamespaceMount reports whether a namespace is mounted on file.
func isNamespaceMount(file string) bool {
	var st unix.Statfs_t
	return unix.Statfs(file, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// unmountNamespaces unmounts the namespaces and the shared memory in a sandbox's directory.
func unmountNamespaces(dir string) error {
	for _, n := range []string{"net", "uts", "ipc", "shm"} {
		p := filepath.Join(dir, n)
		for {
			err := unix.Unmount(p, unix.MNT_DETACH)
			if err == unix.EINVAL || err == unix.ENOENT { // not, or no longer, a mount
				break
			}
			// A process outside the user namespace in which the mounts were made may not unmount them, but does not see
			// them either.
			if err == unix.EPERM && !isMount(p) {
				break
			}
			if err != nil {
				return fmt.Errorf("unmounting %s: %w", p, err)
			}
		}
	}
	return nil
}

// setns moves the calling thread into the namespace of file, which is a namespace mount or a file in /proc/PID/ns.
func setns(file string, flag int) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, flag)
}
