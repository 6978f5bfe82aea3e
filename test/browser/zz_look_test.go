package browser

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

func TestZZ(t *testing.T) {
	addr := os.Getenv("ZZ_ADDR")
	base, _, _ := strings.Cut(addr, "/?token=")
	b := open(t, &console{base: base, first: addr})
	for i, path := range strings.Fields(os.Getenv("ZZ_PATHS")) {
		for _, theme := range []string{"light", "dark"} {
			b.theme(theme)
			for _, w := range []int64{360, 1400} {
				b.size(w, 800)
				b.visit(path)
				time.Sleep(1500 * time.Millisecond)
				if js := os.Getenv("ZZ_JS"); js != "" {
					_ = evaluate[any](b, js)
					time.Sleep(700 * time.Millisecond)
				}
				data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
				if err != nil {
					t.Fatal(err)
				}
				_ = os.WriteFile(fmt.Sprintf("/tmp/w/logs-shots/%s%d-%s-%d.png", os.Getenv("ZZ_NAME"), i, theme, w), data, 0o644)
			}
		}
	}
}
