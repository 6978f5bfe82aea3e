// Package cri is the "process" container runtime: a server of the Container Runtime Interface (v1) that runs each
// container as processes of the machine's own file system, without any image. Whatever is installed on the machine
// can be a container's command; the image's name is kept as given and otherwise ignored.
//
// # What a container has of its own
//
//   - Files: it sees the machine's, and what it writes goes to a layer of its own (an overlay) that is removed with
//     it. Volumes are mounted into it as everywhere. A file that appears on the machine after the container's start
//     may stay invisible in it; volumes (hostPath) are up to date.
//   - Network: a pod has its own namespace and an address on a bridge. Pods reach each other and the machine; beyond
//     that they have no route unless the machine forwards and translates addresses. A firewall of the machine that
//     also filters bridges (as Docker may set it up) can keep pods from each other.
//   - Names: host name, /etc/hosts, /etc/resolv.conf, process IDs, shared memory, message queues, terminals, /dev.
//
// # What it does not have
//
// The runtime separates names, networks and files. It is no boundary of trust: containers run as root of the
// machine if the pod does not say otherwise, read every file that their user may read, and share the kernel
// without a seccomp filter or an AppArmor or SELinux profile. There are no cgroups, and a container's layer is
// not measured: limits of CPU, memory and ephemeral storage are not enforced. User, groups, capabilities,
// noNewPrivileges, readOnlyRootFilesystem and privileged work as usual, except that the groups which the machine gives
// to a user are not added to the pod's.
//
// Refused with a reason are: a container without a command, image volumes, host ports, user namespaces of pods,
// runtime handlers, CDI devices, and sysctls that would change the machine's.
//
// # How it works
//
// A sandbox's namespaces are held by mounts, not by a process. A container's first process is this program again,
// as package shim; it needs no server to go on, so that a server may die at any time, and the next one takes over.
// All state is in files (state.go lists them).
//
// It needs Linux 5.12 or later and root, or root of a user namespace. In the latter files of other users cannot be
// changed, not even in the container's own layer, and users and groups that are not mapped are refused.
package cri
