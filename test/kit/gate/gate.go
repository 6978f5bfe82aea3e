// Package gate controls the processes of real pods. A gate is a directory that pods mount. A process reads its exit
// code from a pipe there, so that the test decides when it exits, and records each start in a file. The pods run the
// scripts Obey and Idle. Start reading at New.
package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// MountPath is the path of the gate in containers.
const MountPath = "/gate"

// Obey is a script that records its start, waits for an order and exits with the code in the order. It uses no
// processor time while it waits.
const Obey = `echo started >> /gate/$HOSTNAME.starts; read code < /gate/$HOSTNAME; echo "ending with $code"; exit $code`

// Idle is a script that records its start and never exits by itself.
const Idle = `echo started >> /gate/$HOSTNAME.starts; exec sleep 1000000`

// Gate is a directory on this machine that pods mount.
type Gate struct{ dir string }

// New returns a gate that is deleted when the test ends.
func New(t testing.TB) *Gate { return &Gate{t.TempDir()} }

// Dir returns the path of the gate.
func (g *Gate) Dir() string { return g.dir }

// Mount mounts the gate in all containers of a pod.
func (g *Gate) Mount(spec *corev1.PodSpec) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "gate",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: g.dir}}})
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			containers[i].VolumeMounts = append(containers[i].VolumeMounts, corev1.VolumeMount{Name: "gate", MountPath: MountPath})
		}
	}
}

// AddPipe creates the pipe through which a replica receives its orders, unless the pipe exists.
func (g *Gate) AddPipe(replica string) error {
	if err := unix.Mkfifo(g.File(replica), 0o666); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("creating the pipe of %s: %w", replica, err)
	}
	return nil
}

// ErrNobodyListens is the error of Order and Open if no process of the replica is waiting for an order.
var ErrNobodyListens = errors.New("no process waits for an order")

// Order makes the replica that runs Obey exit with an exit code. It returns ErrNobodyListens if no process of the
// replica is waiting for an order, because it has not started or has just been killed.
func (g *Gate) Order(replica string, code int) error {
	f, err := g.Open(replica)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = fmt.Fprintln(f, code); errors.Is(err, unix.EPIPE) {
		return ErrNobodyListens
	}
	return err
}

// Open opens the pipe to a replica that runs Obey, so that the caller can write the exit code later. It returns
// ErrNobodyListens if the replica is not waiting for an order. The caller closes the pipe. Closing it without writing
// an exit code also makes the replica exit.
func (g *Gate) Open(replica string) (*os.File, error) {
	f, err := os.OpenFile(g.File(replica), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil, ErrNobodyListens
	}
	return f, err
}

// Starts returns the number of starts that the processes of a replica have recorded.
func (g *Gate) Starts(replica string) (int, error) {
	text, err := g.Read(replica + ".starts")
	return strings.Count(text, "started"), err
}

// File returns the path of a file in the gate.
func (g *Gate) File(name string) string { return filepath.Join(g.dir, name) }

// Read returns the text that the processes have written to a file in the gate; empty if there is no such file yet.
func (g *Gate) Read(name string) (string, error) {
	data, err := os.ReadFile(g.File(name))
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return string(data), nil
}
