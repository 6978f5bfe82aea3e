package kit

import (
	"context"
	"os"
	"os/exec"
	"runtime"
)

// opener returns the program that opens an address in the user's browser.
func opener() string {
	if runtime.GOOS == "darwin" {
		return "open"
	}
	return "xdg-open"
}

// HasBrowser reports whether this machine probably has a browser that the user can see.
func HasBrowser() bool {
	if _, err := exec.LookPath(opener()); err != nil {
		return false
	}
	return runtime.GOOS != "linux" || os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
}

// Browse opens an address in the user's browser. It does not wait for the browser. When ctx is done, the program that
// opens the address is killed.
func Browse(ctx context.Context, url string) error {
	return exec.CommandContext(ctx, opener(), url).Start()
}
