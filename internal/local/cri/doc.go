// Package cri is the "process" container runtime: a server of the Container Runtime Interface (v1) that runs each
// container as processes on the machine's own file system, without an image. The command of a container can be any
// program that is installed on the machine. The runtime reports the name of the image and ignores it otherwise.
//
// # What is isolated
//
//   - Files: a container sees the machine's files. What it writes goes to a layer of its own (an overlay), which is
//     removed with the container. Volumes are mounted as in any cluster. A file that appears on the machine after the
//     container has started may be invisible in the container; a hostPath volume always shows the current files.
//   - Network: a pod has its own namespace and an address on a bridge. Pods reach each other and the machine. They
//     reach other machines only if this machine forwards packets and translates addresses. If the machine's firewall
//     filters bridges too, as Docker may configure it, pods may be unable to reach each other.
//   - Names: host name, /etc/hosts, /etc/resolv.conf, process IDs, shared memory, message queues, terminals, /dev.
//
// # What is not isolated
//
// The runtime separates names, networks and files, but it is no security boundary. Unless the pod sets another user,
// containers run as root of the machine or, in a user namespace, as the user who created it. They can read every file
// that their user can read, and they share the kernel without a seccomp filter or an AppArmor or SELinux profile. There
// are no cgroups, and the runtime does not measure layers, so it does not enforce limits of CPU, memory and ephemeral
// storage. In a security context, the user, the groups, capabilities, allowPrivilegeEscalation, readOnlyRootFilesystem
// and privileged work as usual, except that a pod does not get the supplementary groups of its user on the machine.
//
// The runtime refuses, with a reason: containers without a command, image volumes, mounts with mapped owners, host
// ports, user namespaces of pods, runtime handlers, CDI devices, and sysctls that would change the machine.
//
// # How it works
//
// Mounts hold the namespaces of a sandbox, so no process has to. Only a PID namespace that containers share is held by
// a process (pause.go). The first process of a container is this program, running package shim. The shim does not
// depend on the server, which may die at any time; the next server takes over. All state is in files, which state.go
// lists.
//
// The runtime needs Linux 5.12 or later, and root or root of a user namespace. In a user namespace, a container cannot
// change files of other users, not even in its own layer, and the runtime refuses users and groups that are not mapped.
package cri
