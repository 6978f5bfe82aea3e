package cri

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"
)

// A later server and Cleanup read all state from files:
//
//	ROOT/lock                    held by the server
//	ROOT/bridge                  the hardware address of the bridge, if the runtime made it
//	ROOT/address                 the address that was assigned last
//	ROOT/sandboxes/ID/           state.json, config.pb, resolv.conf, hostname; net, uts and ipc, on which the
//	                             namespaces are mounted; shm, the pod's /dev/shm
//	ROOT/containers/ID/          state.json, config.pb, the files of package shim; root and layer
//
// A directory without state.json is incomplete, because the state is written last.
const (
	stateFile  = "state.json"
	configFile = "config.pb"
)

func (c Config) sandboxes() string             { return filepath.Join(c.Root, "sandboxes") }
func (c Config) containers() string            { return filepath.Join(c.Root, "containers") }
func (c Config) sandboxDir(id string) string   { return filepath.Join(c.sandboxes(), id) }
func (c Config) containerDir(id string) string { return filepath.Join(c.containers(), id) }

// newID returns a random ID for a sandbox or container.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// writeFile replaces a file atomically. It does not sync to disk, because no container survives a crash of the machine.
func writeFile(path string, b []byte) error {
	t := path + ".tmp"
	if err := os.WriteFile(t, b, 0o600); err != nil {
		return err
	}
	return os.Rename(t, path)
}

// writeJSON replaces a file with v as JSON.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFile(path, b)
}

// readJSON reads a JSON file into v.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeState writes the files of a new sandbox or container. The state file comes last, because it marks the directory
// as complete.
func writeState(dir string, state any, config proto.Message) error {
	b, err := proto.Marshal(config)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, configFile), b); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, stateFile), state)
}

// loadState reads the files of a sandbox or container.
func loadState(dir string, state any, config proto.Message) error {
	if err := readJSON(filepath.Join(dir, stateFile), state); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return err
	}
	return proto.Unmarshal(b, config)
}

// readLastAddress returns the address that was assigned last, or the bridge's address if the file contains no address
// in the subnet.
func (c Config) readLastAddress() netip.Addr {
	b, err := os.ReadFile(filepath.Join(c.Root, "address"))
	if err != nil {
		return c.Subnet.Addr()
	}
	a, err := netip.ParseAddr(strings.TrimSpace(string(b)))
	if err != nil || !c.Subnet.Contains(a) {
		return c.Subnet.Addr()
	}
	return a
}

// entryNames lists the names in a directory. It returns nothing if the directory does not exist.
func entryNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// within reports whether p is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
