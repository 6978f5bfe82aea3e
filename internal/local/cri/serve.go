package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Config configures the runtime.
type Config struct {
	// Socket is the path of the CRI's Unix socket. An existing file is replaced.
	Socket string
	// Root is the directory of all state: sandboxes, containers and their layers. It is created if it does not exist,
	// and must be on a local file system. Only one server can use it at a time.
	Root string
	// Mask is the path of a directory with keys, which containers see as empty. It is optional. Containers always see
	// Root as empty.
	Mask string
	// Bridge is the name of the bridge that connects the pods (at most 15 bytes). It is created if it does not exist.
	Bridge string
	// Subnet is the bridge's IPv4 address and the length of the prefix. Pods get the other addresses.
	Subnet netip.Prefix
	// Rootless is true if the process is root only in a user namespace.
	Rootless bool
	// Log receives the errors that no CRI response can contain. The zero value discards them.
	Log logr.Logger
}

// maxMessage is the limit of a CRI message in bytes. The kubelet has the same limit.
const maxMessage = 16 << 20

// server is the CRI server. Its sandboxes, containers and addresses are copies of the files in Root. mu guards all maps
// and the state in their values. The configurations in the values never change.
type server struct {
	pb.UnimplementedRuntimeServiceServer
	pb.UnimplementedImageServiceServer

	cfg     Config
	hide    []string
	ids     idMaps
	streams streaming.Server
	// startWatch runs watch for a container in a goroutine of work. The context of watch ends with the server, not with
	// the call that starts the container.
	startWatch func(*container, *process)
	// work holds the goroutines that run until the server ends.
	work sync.WaitGroup

	mu            sync.Mutex
	sandboxes     map[string]*sandbox
	containers    map[string]*container
	addresses     map[netip.Addr]string // addresses in use, with the IDs of their sandboxes
	last          netip.Addr            // the address that was assigned last
	images        map[string]bool
	watchers      map[chan *pb.ContainerEventResponse]bool
	loggedRemarks map[string]bool
}

// Serve takes over the state of an earlier server in cfg.Root, and returns when the socket answers. It serves until ctx
// ends. The containers then continue to run, until the next server takes them over or [Cleanup] kills them.
func Serve(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	for _, d := range []string{cfg.Root, cfg.sandboxes(), cfg.containers()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("making the runtime's directory: %w", err)
		}
	}
	unlock, err := lock(ctx, cfg.Root)
	if err != nil {
		return err
	}
	s := newServer(ctx, cfg)
	if err := s.start(ctx, unlock); err != nil {
		unlock()
		return err
	}
	return nil
}

// newServer returns a server without sandboxes and containers. The watches of its containers end with ctx.
func newServer(ctx context.Context, cfg Config) *server {
	s := &server{
		cfg: cfg, hide: cfg.hidden(), sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		addresses: map[netip.Addr]string{}, images: map[string]bool{}, watchers: map[chan *pb.ContainerEventResponse]bool{},
		loggedRemarks: map[string]bool{},
	}
	s.startWatch = func(c *container, p *process) { s.work.Go(func() { s.watch(ctx, c, p) }) }
	return s
}

// start takes over the containers, and starts the servers of the CRI and of streams. When ctx ends, it stops these
// servers, waits for the server's goroutines, and calls unlock.
func (s *server) start(ctx context.Context, unlock func()) error {
	catchIgnoredSignals()
	var err error
	if s.ids, err = readIDMaps(); err != nil {
		return err
	}
	if err := ensureBridge(s.cfg); err != nil {
		return fmt.Errorf("setting up bridge %s: %w", s.cfg.Bridge, err)
	}
	s.last = s.cfg.readLastAddress()
	if err := s.adopt(ctx); err != nil {
		return fmt.Errorf("taking over the containers in %s: %w", s.cfg.Root, err)
	}
	// The kubelet on this machine opens the streams. Each URL contains a random token that is valid once.
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for streams: %w", err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: streams.Addr().String(), Path: "/"}
	if s.streams, err = streaming.NewServer(config, streamRuntime{s}); err != nil {
		return errors.Join(err, streams.Close())
	}
	socket, err := listenUnix(s.cfg.Socket)
	if err != nil {
		return errors.Join(err, streams.Close())
	}
	web := &http.Server{Handler: s.streams, ReadHeaderTimeout: time.Minute}
	rpc := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	pb.RegisterRuntimeServiceServer(rpc, s)
	pb.RegisterImageServiceServer(rpc, s)
	s.work.Go(func() {
		if err := web.Serve(streams); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error(err, "Cannot serve streams")
		}
	})
	s.work.Go(func() {
		if err := rpc.Serve(socket); err != nil {
			s.cfg.Log.Error(err, "Cannot serve the CRI")
		}
	})
	// Nothing in this process waits for this goroutine. The next server does, because the goroutine releases the lock.
	go func() {
		<-ctx.Done()
		rpc.Stop()
		web.Close()
		s.work.Wait()
		unlock()
	}()
	return nil
}

// catchIgnoredSignals handles every signal that this process inherited as ignored. Otherwise the processes of
// containers would also ignore these signals: SIGHUP under nohup, SIGINT and SIGQUIT in a script's background job.
func catchIgnoredSignals() {
	for sig := unix.Signal(1); sig <= unix.SIGSYS; sig++ {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // a handled signal is reset to its default on exec
		}
	}
}

// complete validates the configuration and makes its paths absolute.
func (c *Config) complete() error {
	if c.Log.GetSink() == nil {
		c.Log = logr.Discard()
	}
	if !c.Subnet.IsValid() || !c.Subnet.Addr().Is4() || c.Subnet.Bits() > 30 {
		return fmt.Errorf("subnet %s: want an IPv4 address and a prefix of at most 30 bits", c.Subnet)
	}
	if c.Bridge == "" || len(c.Bridge) >= unix.IFNAMSIZ {
		return fmt.Errorf("bridge %q: want a name of 1 to %d bytes", c.Bridge, unix.IFNAMSIZ-1)
	}
	for _, p := range []*string{&c.Socket, &c.Root} {
		if *p == "" {
			return errors.New("the socket and the root directory are needed")
		}
	}
	for _, p := range []*string{&c.Socket, &c.Root, &c.Mask} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	return nil
}

// hidden lists the directories that containers see as empty, without symbolic links in their paths.
func (c Config) hidden() []string {
	var out []string
	for _, p := range []string{c.Mask, c.Root} {
		if p == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		if len(out) == 0 || !within(p, out[0]) {
			out = append(out, p)
		}
	}
	return out
}

// lockTimeout is how long a server waits for the earlier server to release the lock.
const lockTimeout = 10 * time.Second

// lock makes the caller the only user of root. It waits at most lockTimeout for an earlier user. The kernel releases
// the lock when the process dies.
func lock(ctx context.Context, root string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another runtime uses %s: %w", root, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// listenUnix listens on a socket that only its owner can use.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for the CRI: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
