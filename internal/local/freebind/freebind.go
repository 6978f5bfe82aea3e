// Package freebind lets a server listen on an address before the machine has the address.
package freebind

import (
	"net"
	"syscall"
)

// Config returns a listen configuration that accepts addresses that do not exist on the machine yet (IP_FREEBIND).
func Config() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if outer := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_FREEBIND, 1)
		}); outer != nil {
			return outer
		}
		return err
	}}
}
