package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/program"
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if stopChromium != nil {
		stopChromium()
	}
	os.Exit(code)
}

// stopChromium stops the browser and waits until it has exited. It is nil until the browser has started.
var stopChromium func()

// chromium starts the browser that all tests share and returns its context. Without Chromium, it skips the test, or
// fails it if all requirements must be met.
func chromium(t testing.TB) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		require.Missing(t, "chromium (Debian's package of that name)")
	}
	started, err := startChromium(path)
	if err != nil {
		t.Fatal(err)
	}
	return started.ctx
}

// running is a browser with its first, empty tab.
type running struct{ ctx context.Context }

var startChromium = func() func(string) (*running, error) {
	var once sync.Once
	var r *running
	var failed error
	return func(path string) (*running, error) {
		once.Do(func() { r, failed = launch(path) })
		return r, failed
	}
}()

func launch(path string) (*running, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("font-render-hinting", "none"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	stopChromium = func() {
		closeTab()
		end()
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, fmt.Errorf("starting Chromium: %w", err)
	}
	return &running{ctx}, nil
}

// console is a running `t9k ui`, or the running console of an installation, for which only base is set.
type console struct {
	kubeconfig string
	// first is the address that t9k ui prints, empty once the browser has opened it; base is the same address without
	// the token.
	first, base string
}

// serve starts `t9k ui` with a kubeconfig. The command stops when the test ends.
func serve(t testing.TB, kubeconfig string) *console {
	t.Helper()
	p, err := program.Start(binary(), []string{"ui", "--no-browser", "--kubeconfig", kubeconfig}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.EndWith(t)
	c := &console{kubeconfig: kubeconfig}
	await.Until(t, "t9k ui prints its address", func() error {
		for _, line := range strings.Fields(p.Log.String()) {
			if base, _, found := strings.Cut(line, "/?token="); found {
				c.first, c.base = line, base
				return nil
			}
		}
		return fmt.Errorf("it has printed %q", p.Log.String())
	})
	return c
}

// t9k runs a command of the CLI and waits until it has succeeded.
func (c *console) t9k(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(), append(args, "--kubeconfig", c.kubeconfig)...).CombinedOutput()
	if err != nil {
		t.Fatalf("t9k %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// binary returns the path of t9k.
func binary() string {
	if path := os.Getenv("T9K"); path != "" {
		return path
	}
	path, err := filepath.Abs("../../bin/t9k")
	if err != nil {
		panic(err)
	}
	return path
}

// patience bounds each call to the browser.
const patience = 2 * time.Minute
