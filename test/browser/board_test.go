package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
)

// logged is the manifest of a job with a TensorBoard.
const logged = `{apiVersion: batch.tensorstack.dev/v1beta1, kind: PyTorchTrainingJob, metadata: {name: NAME},
spec: {tensorboardSpec: {image: tensorboard, logDir: {s3: {secretRef: {name: keys}, uri: ["s3://bucket/runs"]}}},
replicaSpecs: [{type: worker, replicas: 1, template: {spec: {containers: [{name: pytorch, image: busybox, command: [sleep, "1000000"]}]}}}]}}`

// addStandIn adds a replacement for TensorBoard to the PATH of the programs that the test starts.
func addStandIn(t *testing.T) {
	t.Helper()
	dir, err := filepath.Abs("../e2e/testdata/bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// tensorBoard opens the TensorBoard of a job, also after the TensorBoard was suspended, and verifies that its page is
// isolated from the console.
func (l *live) tensorBoard(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		require.Missing(t, "python3")
	}
	l.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, StringData: map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}})
	path := l.create(logged, "logged")
	b := open(t, l.console)
	l.visitJob(b, path)
	b.awaits("the TensorBoard is ready", `[...document.querySelectorAll('.facts div')].some(e => e.innerText === 'TensorBoard\nready')`)
	b.looksGood()
	b.click("#open-tensorboard")
	board := b.opened("http://localhost:")
	board.awaits("the TensorBoard is shown", "document.title === 'TensorBoard'")
	at := evaluate[string](board, "location.href")
	if opener := evaluate[bool](board, "window.opener === null"); !opener {
		t.Error("the page of the TensorBoard has the one of the console as its opener")
	}
	l.boardIsApart(t, board, at, path)
	l.boardHasOneName(t, at)

	b.front()
	b.click("#open-tensorboard")
	b.opened(at).awaits("it is open at one address", "document.title === 'TensorBoard'")

	l.suspend("logged")
	b.front()
	b.click("#ask-tensorboard")
	b.shows("t9k tensorboard -n " + l.Namespace + " pytorchtrainingjob/logged --resume")
	b.looksGood()
	b.click("#do-tensorboard button.primary")
	b.opened(at).awaits("the resumed TensorBoard is shown at the same address", "document.title === 'TensorBoard'")
	b.front()
	b.awaits("the page goes on after the answer", "document.getElementById('open-tensorboard')")
	l.boardWithoutScript(t, path, at)
	l.boardThatCannotStart(t)
}

// boardThatCannotStart opens a TensorBoard whose Secret does not exist, and verifies that the page names the Secret.
func (l *live) boardThatCannotStart(t *testing.T) {
	b := open(t, l.console)
	path := l.create(strings.Replace(logged, "{name: keys}", "{name: no-such-keys}", 1), "unlogged")
	l.visitJob(b, path)
	b.click("#open-tensorboard")
	why := b.opened(b.base + path + "/tensorboard")
	why.shows("no-such-keys")
	why.shows("Try again")
	why.looksGood()
}

// boardIsApart verifies that TensorBoard receives no cookie of the console, and that its page cannot read the console
// or change a job.
func (l *live) boardIsApart(t *testing.T, board *tab, at, path string) {
	evaluate[string](board, "document.cookie = 'other-program=secret; path=/'")
	if seen := evaluate[string](board, "fetch('headers', {credentials: 'include'}).then(() => fetch('headers')).then(r => r.text())"); strings.Contains(seen, "Cookie") || !strings.Contains(seen, "localhost:") {
		t.Errorf("the TensorBoard gets %s", seen)
	}
	if cookies := evaluate[string](board, "document.cookie"); cookies != "other-program=secret" {
		t.Errorf("the page of the TensorBoard has the cookies %q", cookies)
	}
	try := func(what, script string) string {
		return evaluate[string](board, "("+script+").then(() => 'done', e => 'refused: ' + e)")
	}
	console := quoted(l.base + path)
	for what, script := range map[string]string{
		"read the console":          "fetch(" + console + ", {credentials: 'include'})",
		"stay as a service worker":  "navigator.serviceWorker.register(location.pathname + 'headers')",
		"change a job and read why": "fetch(" + console + " + '/delete', {method: 'POST', credentials: 'include'})",
	} {
		if got := try(what, script); !strings.HasPrefix(got, "refused") {
			t.Errorf("%s: %s", what, got)
		}
	}
	try("change a job blindly", "fetch("+console+" + '/delete', {method: 'POST', mode: 'no-cors', credentials: 'include'})")
	evaluate[bool](board, `(f => { f.method = 'post'; f.action = `+console+` + '/delete'; document.body.append(f); f.submit(); return true; })(document.createElement('form'))`)
	board.shows("This request comes from another page.")
	board.do(chromedp.Navigate(at))
	evaluate[bool](board, "location.assign("+console+") ?? true")
	board.shows("This browser is not admitted") // a link from another site sends no cookie
	var j batch.PyTorchTrainingJob
	if l.Must(l.Get("logged", &j)); j.DeletionTimestamp != nil {
		t.Error("a page of the TensorBoard has deleted the job")
	}
}

// boardHasOneName verifies that a TensorBoard is served only under the name localhost.
func (l *live) boardHasOneName(t *testing.T, at string) {
	port, _, _ := strings.Cut(strings.TrimPrefix(at, "http://localhost:"), "/")
	for host, want := range map[string]int{"localhost:" + port: 200, "evil.example:" + port: 403, "127.0.0.1:" + port: 307, "localhost.evil.example": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want || len(answer.Cookies()) > 0 {
			t.Errorf("under the name %s: %s with cookies %v", host, answer.Status, answer.Cookies())
		}
	}
}

// boardWithoutScript resumes and opens a TensorBoard without JavaScript, from a page that shows an old state.
func (l *live) boardWithoutScript(t *testing.T, path, at string) {
	b := open(t, l.console)
	b.scripts(false)
	b.visit(path)
	l.suspend("logged")
	b.do(chromedp.Click("#open-tensorboard"))
	second := b.opened(b.base + path + "/tensorboard")
	await.Until(second, "the page says that the TensorBoard is suspended", func() error {
		if text := second.html(); !strings.Contains(text, "It is suspended") {
			return errors.New(text)
		}
		return nil
	})
	second.do(chromedp.Click("main button"))
	await.Until(second, "the TensorBoard is shown", func() error {
		if text := second.html(); !strings.Contains(text, "<title>TensorBoard</title>") {
			return errors.New(text)
		}
		return nil
	})
	if url := second.url(); url != at {
		t.Errorf("it is at %s", url)
	}
}

// suspend suspends a TensorBoard, and waits until it is suspended.
func (l *live) suspend(name string) {
	l.Helper()
	tb := &tensorboard.TensorBoard{}
	l.Must(l.Get(name, tb))
	l.Update(tb, func() { tb.Spec.Suspend = new(true) })
	l.Await("the TensorBoard is suspended", func() error {
		l.Must(l.Get(name, tb))
		if tb.Status.Phase != tensorboard.Suspended {
			return fmt.Errorf("it is %s", tb.Status.Phase)
		}
		return nil
	})
}

// opened waits for a tab whose address begins with address and that opened has not returned before, and returns it. The
// browser's complaints about this tab are not recorded.
func (b *tab) opened(address string) *tab {
	b.Helper()
	other := &tab{TB: b.TB, console: b.console}
	known := map[string]bool{}
	for _, t := range b.others {
		known[t] = true
	}
	await.Until(b, "a tab with "+address+" is open", func() error {
		all, err := chromedp.Targets(b.ctx)
		if err != nil {
			return err
		}
		var urls []string
		for _, t := range all {
			if id := string(t.TargetID); t.Type == "page" && strings.HasPrefix(t.URL, address) && !known[id] {
				ctx, closeTab := chromedp.NewContext(b.ctx, chromedp.WithTargetID(t.TargetID))
				other.ctx, b.others = ctx, append(b.others, id)
				b.Cleanup(closeTab)
				return chromedp.Do(ctx)
			}
			urls = append(urls, t.URL)
		}
		return fmt.Errorf("there are %q", urls)
	})
	return other
}

// front brings the tab to the front, because the browser does not update pages in the background.
func (b *tab) front() {
	b.Helper()
	call(b, page.BringToFront, cdp.Empty{})
}

// url returns the address of the current page. It works without JavaScript.
func (b *tab) url() string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	url, err := chromedp.Run(ctx, chromedp.Location())
	if err != nil {
		b.Fatal(err)
	}
	return url
}
