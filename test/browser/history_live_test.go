package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"tensorstack.dev/batch/internal/archive/recorder"
	"tensorstack.dev/batch/internal/archive/web"
)

// record records a cluster in an archive until the test ends, and returns the path of a kubeconfig that names the
// archive.
func record(t *testing.T, kubeconfig string, config *rest.Config) string {
	t.Helper()
	s := newArchive(t)
	r, err := recorder.Start(t.Context(), recorder.Options{Config: config, Store: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Wait)
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return withArchive(t, kubeconfig, s, web.Self{Objects: objects})
}

// history follows a deleted job from the address of its page to its attempts and logs in the archive, and runs it
// again.
func (l *live) history(t *testing.T, failed string) {
	b := open(t, l.console)
	b.visit(failed + "/logs")
	b.shows("reversed") // the log can be read, so the archive contains it once it contains the end of the job
	b.visit("/history?ns=" + l.Namespace + "&q=fails")
	b.awaitsReload("the archive has the failed job", "document.querySelector('.past .bad')")
	b.visit(failed)
	b.click(`.facts a[href^="/history/"]`)
	b.shows("Attempts", "exit code 3")
	entry := evaluate[string](b, "location.pathname")
	b.click(`.actions a[href="` + failed + `"]`) // the page of the job itself
	b.shows("exit code 3", "live")
	l.t9k(t, "delete", "-n", l.Namespace, "fails")
	b.shows("It is gone")
	b.looksGood()
	b.click(`main a[href^="/history/"]`)
	b.at(entry)
	b.expect("404")
	b.visit(failed + "/logs")
	b.click(`main li a[href="` + entry + `/logs"]`)
	b.shows("the archive has no more")
	b.visit(failed)
	b.awaitsReload("the page of the job leads to the archive", `document.querySelector('h1').innerText === 'No such job' && document.querySelector('main li a[href^="/history/"]')`)
	b.looksGood()
	b.click(`main li a[href^="/history/"]`)
	b.shows("Failed", "worker-0", "exit code 3", "Attempts")
	path := evaluate[string](b, "location.pathname")
	for tab, text := range map[string]string{"": "exit code 3", "replicas": "sh -c", "events": "Reason", "conditions": "FailureRuleMet", "manifest": "kind: GenericJob", "manifest&form=pods": "kind: Pod"} {
		b.visit(path + "?tab=" + tab)
		b.shows(text)
		b.looksGood()
		b.reachable()
	}
	b.visit(path)
	if n := evaluate[int](b, "document.querySelectorAll('#job-actions button').length"); n != 0 {
		t.Errorf("%d buttons act on a job that is gone", n)
	}
	b.click(`.tabs a[href$="/logs"]`)
	b.shows("1 line; the archive has no more", "<script>alert(1)</script>")
	b.looksGood()
	b.reachable()
	b.do(chromedp.SetValue("select[name=attempt]", "1"))
	b.click("#logform > button")
	b.at(path + "/logs?replica=&attempt=1")
	b.shows("1 line;")
	if got := evaluate[string](b, `fetch(document.querySelector('a[download]').href).then(r => r.text())`); !strings.Contains(got, "worker-0 <script>") {
		t.Errorf("the download is %q", got)
	}
	b.visit(path)
	b.click(".actions form button")
	b.shows("The cluster accepts it", "fails-2")
	b.visit("/history/usage?resource=cpu")
	b.shows("core-hours")
	b.looksGood()
	b.reachable()
	l.historyByKeys(t, path)
	b.scripts(false)
	for page, text := range map[string]string{"/history?q=fails": "fails", path: "exit code 3", path + "/logs": "&lt;script&gt;alert(1)&lt;/script&gt;", "/history/usage": "History"} {
		b.visit(page)
		if html := b.html(); !strings.Contains(html, text) {
			t.Errorf("%s without JavaScript lacks %q: %s", page, text, html)
		}
	}
	b.scripts(true)
}

// historyByKeys finds a job in the history with the keyboard alone.
func (l *live) historyByKeys(t *testing.T, path string) {
	b := open(t, l.console)
	b.visit("/")
	b.tabTo("a History")
	b.press(kb.Enter)
	b.at("/history")
	b.looksGood()
	b.reachable()
	b.tabTo("input[q] Part of the name")
	b.press("FAIL" + kb.Enter)
	b.shows("fails")
	b.awaits("the search is in the address", "location.search.includes('q=FAIL')")
	b.tabTo("a fails")
	b.press(kb.Enter)
	b.at(path)
}

// awaitsReload reloads the page until an expression is true in it.
func (b *tab) awaitsReload(what, expression string) {
	b.Helper()
	b.awaits(what, "("+expression+") || (setTimeout(() => location.reload(), 300), false)")
}
