package cri

import (
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// idMaps are the user and group IDs that exist in this process's user namespace.
type idMaps struct {
	users, groups []idRange
	noGroups      bool // setgroups is denied, as in a namespace that an unprivileged user created without newgidmap
}

// idRange is a range of user or group IDs.
type idRange struct{ first, size uint64 }

// readIDMaps reads the ID maps of this process's user namespace.
func readIDMaps() (m idMaps, err error) {
	if m.users, err = readIDMap("/proc/self/uid_map"); err != nil {
		return m, err
	}
	if m.groups, err = readIDMap("/proc/self/gid_map"); err != nil {
		return m, err
	}
	b, err := os.ReadFile("/proc/self/setgroups")
	m.noGroups = strings.TrimSpace(string(b)) == "deny"
	return m, err
}

// readIDMap reads a uid_map or gid_map file.
func readIDMap(path string) (out []idRange, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var r idRange
		var outside uint64
		if _, err := fmt.Sscan(line, &r.first, &outside, &r.size); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// mapped reports whether an ID exists in the user namespace.
func mapped(ranges []idRange, id int64) bool {
	return id >= 0 && id < math.MaxUint32 && slices.ContainsFunc(ranges, func(r idRange) bool {
		return uint64(id) >= r.first && uint64(id)-r.first < r.size
	})
}

// credential returns the user and groups of the command and the user's home directory. The home directory and, unless
// the security context sets it, the primary group come from the machine's user database, as they would from an image. A
// user that the database lacks has the group 0 and the home directory /. The supplementary groups of the database are
// not added. credential fails if an ID does not exist in the user namespace.
func credential(sc *pb.LinuxContainerSecurityContext, ids idMaps) (*syscall.Credential, string, error) {
	uid := int64(0)
	if sc.GetRunAsUser() != nil {
		uid = sc.RunAsUser.Value
	}
	var u *user.User
	var err error
	if name := sc.GetRunAsUsername(); name != "" {
		if u, err = user.Lookup(name); err != nil {
			return nil, "", fmt.Errorf("runAsUserName %q: %w", name, err)
		}
		if uid, err = strconv.ParseInt(u.Uid, 10, 64); err != nil {
			return nil, "", err
		}
	} else if u, err = user.LookupId(strconv.FormatInt(uid, 10)); err != nil {
		u = &user.User{Gid: "0", HomeDir: "/"} // as for a user that an image does not define
	}
	gid, err := strconv.ParseInt(u.Gid, 10, 64)
	if err != nil {
		return nil, "", err
	}
	if sc.GetRunAsGroup() != nil {
		gid = sc.RunAsGroup.Value
	} else if !mapped(ids.groups, gid) {
		gid = 0
	}
	if !mapped(ids.users, uid) {
		return nil, "", unmappedError("runAsUser", uid)
	}
	cred := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	for _, g := range append([]int64{gid}, sc.GetSupplementalGroups()...) {
		if !mapped(ids.groups, g) {
			return nil, "", unmappedError("runAsGroup, fsGroup or supplementalGroups", g)
		}
	}
	for _, g := range sc.GetSupplementalGroups() {
		cred.Groups = append(cred.Groups, uint32(g))
	}
	if ids.noGroups {
		if len(cred.Groups) > 0 {
			return nil, "", fmt.Errorf("supplementary groups (%v) are denied in this user namespace: "+
				"give the user a range in /etc/subgid, or run as root", cred.Groups)
		}
		cred.NoSetGroups = true
	}
	return cred, u.HomeDir, nil
}

// unmappedError returns the error for an ID of a security context that does not exist in the user namespace.
func unmappedError(field string, id int64) error {
	return fmt.Errorf("%s %d does not exist in this user namespace: give the user a range in /etc/subuid and /etc/subgid, or run as root", field, id)
}

// capabilities are the names of all capabilities in the order of their numbers.
var capabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
	SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// defaultCapabilities are the capabilities of a container that does not set any. They are the defaults of other
// runtimes.
var defaultCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE
	NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP`)

// droppedCapabilities lists the numbers of the capabilities that the container must not have.
func droppedCapabilities(sc *pb.LinuxContainerSecurityContext) ([]uintptr, error) {
	if sc.GetPrivileged() {
		return nil, nil
	}
	keep := map[string]bool{}
	set := func(names []string, value bool) error {
		for _, n := range names {
			n = strings.TrimPrefix(strings.ToUpper(n), "CAP_")
			if n != "ALL" && !slices.Contains(capabilities, n) {
				return fmt.Errorf("there is no capability %q", n)
			}
			keep[n] = value
		}
		return nil
	}
	list := sc.GetCapabilities()
	all := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, "ALL") || strings.EqualFold(n, "CAP_ALL") })
	}
	start := defaultCapabilities
	if all(list.GetAddCapabilities()) {
		start = capabilities
	}
	if all(list.GetDropCapabilities()) {
		start = nil
	}
	if err := set(start, true); err != nil {
		return nil, err
	}
	if err := set(list.GetAddCapabilities(), true); err != nil {
		return nil, err
	}
	if err := set(list.GetDropCapabilities(), false); err != nil {
		return nil, err
	}
	var out []uintptr
	for i, n := range capabilities {
		if !keep[n] {
			out = append(out, uintptr(i))
		}
	}
	return out, nil
}
