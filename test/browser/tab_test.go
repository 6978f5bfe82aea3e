package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"tensorstack.dev/batch/test/kit/await"
)

// tab is a tab of the browser. The test fails if the browser reports an error, a warning, an exception or a violation
// of the Content-Security-Policy in the tab.
type tab struct {
	testing.TB
	*console
	ctx context.Context
	// others holds the target IDs of the tabs that opened has returned.
	others []string

	mu         sync.Mutex
	complaints []string
	// expected holds parts of the complaints that the test provokes.
	expected []string
}

// open opens a tab on a console, and authorizes the browser if it has not been yet.
func open(t testing.TB, c *console) *tab {
	t.Helper()
	b := newTab(t, c)
	if c.first != "" {
		b.visit(strings.TrimPrefix(c.first, c.base))
		c.first = ""
	}
	return b
}

func newTab(t testing.TB, c *console) *tab {
	t.Helper()
	b := &tab{TB: t, console: c}
	ctx, closeTab := chromedp.NewContext(chromium(t), chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(func() {
		closeTab()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.complaints {
			t.Errorf("the browser complains: %s", text)
		}
	})
	// The tab closes when the context of the first call ends, so this call must not use a context with a timeout.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	b.size(1280, 900)
	return b
}

// hear records the complaints of the browser: errors, warnings, exceptions and violations of the
// Content-Security-Policy.
func (b *tab) hear(event any) {
	text := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if level := string(e.Entry.Level); level == "error" || level == "warning" {
			text = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if kind := string(e.Type); kind == "error" || kind == "warning" || kind == "assert" {
			text = fmt.Sprintf("console: %v", e.Args)
		}
	case *runtime.EventExceptionThrown:
		text = fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	if text != "" {
		b.complaints = append(b.complaints, text)
	}
}

// expect accepts further complaints that contain the text.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

// forget returns the complaints so far and clears them.
func (b *tab) forget() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.complaints
	b.complaints = nil
	return all
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

// visit opens a path of the console.
func (b *tab) visit(path string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// size sets the size of the window.
func (b *tab) size(width, height int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// theme selects "light" or "dark".
func (b *tab) theme(name string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// scripts enables or disables JavaScript for the next pages.
func (b *tab) scripts(on bool) {
	b.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// evaluate returns the value of an expression in the page.
func evaluate[V any](b *tab, expression string) V {
	b.Helper()
	v, err := tryEvaluate[V](b, expression)
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

func tryEvaluate[V any](b *tab, expression string) (V, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
}

// quoted returns a text as a JavaScript literal.
func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(data)
}

// awaits waits until an expression is true in the page. Meanwhile, the browser may load another page.
func (b *tab) awaits(what, expression string) {
	b.Helper()
	await.Until(b, what, func() error {
		ok, err := tryEvaluate[bool](b, "!!("+expression+")")
		if err != nil || ok {
			return err
		}
		text, _ := tryEvaluate[string](b, "location.href + '\\n' + document.body.innerText")
		return errors.New("the page is: " + text)
	})
}

// shows waits until the page shows all texts.
func (b *tab) shows(texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.awaits(fmt.Sprintf("the page shows %q", text), "document.body?.innerText.includes("+quoted(text)+")")
	}
}

// at waits until the tab shows the page with the given path and query.
func (b *tab) at(path string) {
	b.Helper()
	b.awaits("the page is "+path, "document.readyState === 'complete' && location.pathname + location.search === "+quoted(path))
}

// click clicks on the middle of the first element that matches a selector, as a mouse does.
func (b *tab) click(selector string) {
	b.Helper()
	x, y := b.middle(selector)
	b.do(chromedp.MouseClickXY(x, y))
}

// middle scrolls to the first element that matches a selector, and returns the coordinates of its middle.
func (b *tab) middle(selector string) (x, y float64) {
	b.Helper()
	find := "document.querySelector(" + quoted(selector) + ")"
	b.awaits(selector+" is there", find+"?.checkVisibility()")
	place := evaluate[[]float64](b, `(e => {
		e.scrollIntoView({block: 'center', behavior: 'instant'});
		const r = e.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2, hit = document.elementFromPoint(x, y);
		return e.contains(hit) || hit?.contains(e) ? [x, y] : [];
	})(`+find+`)`)
	if len(place) != 2 {
		b.Fatalf("something covers %s", selector)
	}
	return place[0], place[1]
}

// mouse presses or releases a mouse button.
func (b *tab) mouse(kind input.DispatchMouseEventType, button input.MouseButton, x, y float64) {
	b.Helper()
	call(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, Button: button, X: x, Y: y, ClickCount: 1})
}

// press sends each character of keys to the focused element, as a keyboard does. Special keys are constants of package
// kb.
func (b *tab) press(keys string) {
	b.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// shortcut presses a key that a page may handle as a shortcut, in which case the key types nothing.
func (b *tab) shortcut(key string) {
	b.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		text := key
		if kind == input.DispatchKeyEventTypeKeyUp {
			text = ""
		}
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Text: text})
	}
}

// focused describes the element that has the focus.
func (b *tab) focused() string {
	b.Helper()
	return evaluate[string](b, `(e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + (e.name ? '[' + e.name + ']' : '') + ' ' + (e.getAttribute('aria-label') || e.innerText || e.value || '').trim().slice(0, 40))(document.activeElement)`)
}
