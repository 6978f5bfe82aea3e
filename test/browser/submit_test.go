package browser

import (
	"errors"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"tensorstack.dev/batch/test/kit/await"
)

// enters pastes a text into the page Submit.
func (b *tab) enters(text string) {
	b.Helper()
	evaluate[bool](b, `(t => { t.focus(); t.value = `+quoted(text)+`; return t.dispatchEvent(new InputEvent('input', {bubbles: true})); })(document.getElementById('submit-text'))`)
}

// drops drops a file on the page Submit.
func (b *tab) drops(name, text string) {
	b.Helper()
	evaluate[bool](b, `(() => { const data = new DataTransfer(); data.items.add(new File([`+quoted(text)+`], `+quoted(name)+`));
		document.getElementById('submit-text').dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: data})); return true; })()`)
}

// submit enters a manifest with an error, corrects the error, runs the job, and runs another manifest without
// JavaScript.
func (l *live) submit(t *testing.T) {
	text := strings.ReplaceAll(manifest, "NAME", "typed")
	b := open(t, l.console)
	b.visit("/submit?ns=" + l.Namespace)
	b.shows("Submit jobs")
	b.enters(strings.ReplaceAll(text, "replicas: 2", "replica: 2"))
	b.shows("1 error.", `did you mean "replicas"?`, "Line 2")
	b.looksGood()
	b.click(".diagnostic a")
	b.awaits("the line is selected", `(t => document.activeElement === t && t.value.slice(t.selectionStart, t.selectionEnd).startsWith('spec:'))(document.getElementById('submit-text'))`)
	b.drops("job.yaml", text)
	b.shows("The cluster accepts it", "Run 1 job", "pod/typed-worker-0")
	b.click("details summary")
	b.shows("batch.tensorstack.dev/replica-rank")
	b.looksGood()
	b.click("#ask-run")
	b.shows("t9k run -n " + l.Namespace + " -f job.yaml")
	b.looksGood()
	b.click("#do-run .choose button[name=step]")
	b.at("/jobs/" + l.Namespace + "/genericjob/typed")
	b.shows("genericjob/typed created.", "All replicas run.")

	b.visit("/submit?ns=" + l.Namespace)
	b.enters(text)
	b.shows("genericjob/typed exists already")

	b.scripts(false)
	b.visit("/submit?ns=" + l.Namespace)
	b.do(chromedp.SetValue("#submit-text", strings.ReplaceAll(text, "typed", "plain")))
	b.do(chromedp.Focus("#submit-check"))
	b.press(kb.Enter)
	b.sees("The cluster accepts it", "plain")
	b.do(chromedp.Focus("#ask-run"))
	b.press(kb.Enter)
	b.do(chromedp.Focus("#do-run .choose button[name=step]"))
	b.press(kb.Enter)
	b.sees("genericjob/plain created.")
	b.scripts(true)
	b.visit("/jobs/" + l.Namespace + "/genericjob/plain")
	b.shows("All replicas run.")
	for _, name := range []string{"typed", "plain"} {
		l.t9k(t, "delete", "-n", l.Namespace, name)
	}
}

// sees waits until the source of the page contains all texts. It works without JavaScript.
func (b *tab) sees(texts ...string) {
	b.Helper()
	await.Until(b, strings.Join(texts, ", ")+" is in the page", func() error {
		page := b.html()
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return errors.New(page)
			}
		}
		return nil
	})
}
