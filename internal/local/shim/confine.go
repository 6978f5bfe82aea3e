package shim

import (
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Confine drops the capabilities and privileges that processes started by the calling thread must not have. The caller
// must have locked the goroutine to the thread and must let the thread end with the goroutine.
func Confine(s *Spec) error {
	for _, capability := range s.DropCaps {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err // EINVAL: a capability that this kernel does not know
		}
	}
	// The bounding set does not limit inheritable capabilities.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	if !s.NoNewPrivs {
		return nil
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// pause is the main function of the process that holds a PID namespace. It reaps the processes that exit in the
// namespace.
func pause() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	start := os.NewFile(3, "go")
	if n, err := start.Read(make([]byte, 1)); n == 0 || err != nil {
		return 1
	}
	start.Close()
	for range signals {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err != unix.EINTR && (pid <= 0 || err != nil) {
				break
			}
		}
	}
	return 0
}
