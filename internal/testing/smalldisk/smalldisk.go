// Package smalldisk mounts a disk of 250 MiB for a test, and keeps a disk full. Start reading at Mount.
package smalldisk

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tensorstack.dev/batch/internal/testing/require"
)

// Mount mounts a disk of 250 MiB on a directory until the test ends. This is enough for an etcd with little data and
// its log. If the test does not run as root, Mount ends the test as require.Missing does.
func Mount(t testing.TB, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Missing(t, "root, to mount a small disk")
	}
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=250m,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// KeepFull fills the disk of a directory and keeps it full, because components that restart may free some space: etcd
// truncates the tail of its log, which has up to 64 MB. Calling free, or the end of the test, frees the space again.
func KeepFull(t testing.TB, dir string) (free func()) {
	t.Helper()
	hog, err := os.Create(filepath.Join(dir, "hog"))
	if err != nil {
		t.Fatal(err)
	}
	if err := waste(hog); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for again := time.Tick(10 * time.Millisecond); ; {
			select {
			case <-stop:
				stopped <- errors.Join(os.Remove(hog.Name()), hog.Close())
				return
			case <-again:
				if err := waste(hog); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	free = sync.OnceFunc(func() {
		close(stop)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(free)
	return free
}

// waste writes to a file until the disk is full.
func waste(hog *os.File) error {
	var err error
	for block := make([]byte, 64<<10); err == nil; {
		_, err = hog.Write(block)
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}
