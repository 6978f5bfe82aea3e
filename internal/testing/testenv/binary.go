package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const modulePath = "tensorstack.dev/batch"

// LinkFlags equals LOCAL_LDFLAGS of the Makefile; a test checks this. With different flags, the Makefile and the
// tests would each link the program again.
const LinkFlags = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

// Binary returns the path of the t9k-local to test: the path in the environment variable T9K_LOCAL, or else
// bin/t9k-local of this module. Binary builds that file if it is not up to date.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("T9K_LOCAL"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("T9K_LOCAL: %w", err)
		}
		return path, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return build(root)
})

// build builds the binary. A lock keeps several processes from building at the same time.
func build(root string) (string, error) {
	path := filepath.Join(root, "bin", "t9k-local")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	// go build replaces the file instead of overwriting it, so that running processes of t9k-local are not disturbed.
	cmd := exec.Command("go", "build", "-ldflags", LinkFlags, "-o", path, "./cmd/t9k-local")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building t9k-local: %w\n%s", err, out)
	}
	return path, nil
}

// moduleRoot returns the root directory of this module: the working directory or the nearest directory above it whose
// go.mod names the module.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if declares(filepath.Join(dir, "go.mod"), modulePath) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("t9k-local cannot be built outside of the module " + modulePath + ": set T9K_LOCAL")
		}
		dir = parent
	}
}

func declares(file, module string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	return s.Scan() && s.Text() == "module "+module
}
