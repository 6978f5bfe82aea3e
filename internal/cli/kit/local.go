package kit

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// DefaultLocal is the name of the embedded cluster if the user does not name one.
const DefaultLocal = "default"

// localDir returns the directory of an embedded cluster of this user.
func localDir(name string) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the state directory: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "t9k", "local", name), nil
}

// localKubeconfig returns the path of the kubeconfig of an embedded cluster. It returns an error if the cluster does
// not exist or does not run.
func localKubeconfig(name string) (string, error) {
	dir, err := localDir(name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("there is no embedded cluster %q; start it with \"t9k local up%s\"", name, nameFlag(name))
	}
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig of the embedded cluster %q: %w", name, err)
	}
	for _, c := range config.Clusters {
		if answers(c.Server) {
			return path, nil
		}
	}
	return "", fmt.Errorf("the embedded cluster %q is down; start it with \"t9k local up%s\"", name, nameFlag(name))
}

func nameFlag(name string) string {
	if name == DefaultLocal {
		return ""
	}
	return " --name " + name
}

// answers reports whether a server listens at an address of this machine.
func answers(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
