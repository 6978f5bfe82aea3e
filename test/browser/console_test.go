package browser

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// manifest is the manifest of a job with two replicas, which print lines and run until they are stopped.
const manifest = `{apiVersion: batch.tensorstack.dev/v1beta1, kind: GenericJob, metadata: {name: NAME},
spec: {replicaSpecs: [{type: worker, replicas: 2, template: {spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: busybox,
command: [sh, -c, "for i in $(seq 200); do echo line $i; done; echo 'ValueError: <b>bad</b>'; for i in $(seq 200); do echo line $i; done; exec sleep 1000000"]}]}}}]}}`

// failing is the manifest of a job that fails and whose output contains HTML, which a page must show as plain text.
const failing = `{apiVersion: batch.tensorstack.dev/v1beta1, kind: GenericJob, metadata: {name: NAME},
spec: {replicaSpecs: [{type: worker, template: {spec: {containers: [{name: main, image: busybox, terminationMessagePolicy: FallbackToLogsOnError,
command: [sh, -c, "printf '<script>alert(1)</script>\\033[31mred\\033[0m \\342\\200\\256reversed'; exit 3"]}]}}}]}}`

// elastic is the manifest of a paused job whose number of replicas can be changed.
const elastic = `{apiVersion: batch.tensorstack.dev/v1beta1, kind: PyTorchTrainingJob, metadata: {name: NAME},
spec: {runMode: {pause: {enabled: true}}, elastic: {enabled: true, minReplicas: 2, maxReplicas: 4}, torchrunConfig: {enabled: true, procPerNode: "1"},
replicaSpecs: [{type: node, restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: pytorch}]}}}]}}`

// live is a test with a console on an embedded cluster.
type live struct {
	*namespace.Test
	*console
}

// create creates a job from a manifest and returns the path of its page.
func (l *live) create(text, name string) string {
	l.Helper()
	o := &unstructured.Unstructured{}
	l.Must(yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NAME", name)), &o.Object))
	l.Create(o)
	return "/jobs/" + l.Namespace + "/" + strings.ToLower(o.GetKind()) + "/" + name
}

// visitJob opens the page of a job that may just have been created. The console learns of a new job with a delay, so
// visitJob first waits until the list of jobs shows the job.
func (l *live) visitJob(b *tab, path string) {
	l.Helper()
	b.visit("/?ns=" + l.Namespace)
	b.awaits("the list shows "+path, "document.querySelector('#rows a[href=\"'+"+quoted(path)+"+'\"]')")
	b.visit(path)
}

// TestConsolePagesAndButtonsWork verifies every page and every button of the console on a running cluster.
func TestConsolePagesAndButtonsWork(t *testing.T) {
	if err := local.CheckPodSupport(); err != nil {
		require.Missing(t, err.Error())
	}
	chromium(t)
	addStandIn(t)
	p := plane.Start(t, testenv.Options{Components: local.AllComponents()})
	l := &live{namespace.New(t, p), serve(t, record(t, p.Env.Kubeconfig, p.Env.Config))}
	l.AwaitServiceAccount()
	open(t, l.console)
	run, failed := l.create(manifest, "prime"), l.create(failing, "fails")
	paused := l.create(elastic, "elastic")
	t.Run("Pages", func(t *testing.T) { l.pages(t, run, failed, paused) })
	t.Run("WithoutScript", func(t *testing.T) { l.withoutScript(t, run, failed) })
	t.Run("Logs", func(t *testing.T) { l.logs(t, run) })
	t.Run("LiveUpdate", l.liveUpdate)
	t.Run("Buttons", func(t *testing.T) { l.buttons(t, run, paused) })
	t.Run("UpdateDuringAClick", l.updateDuringAClick)
	t.Run("SelectedJobs", l.selectedJobs)
	t.Run("Submit", l.submit)
	t.Run("TensorBoard", l.tensorBoard)
	t.Run("BackButton", func(t *testing.T) { l.backButton(t, run) })
	t.Run("KeyboardOnly", l.keyboardOnly)
	t.Run("Refused", l.refused)
	t.Run("History", func(t *testing.T) { l.history(t, failed) })
}

func (l *live) pages(t *testing.T, run, failed, paused string) {
	b := open(t, l.console)
	l.visitJob(b, run)
	b.shows("All replicas run.", "worker-1")
	l.visitJob(b, failed)
	b.shows("Failed", "exit code 3", "<script>alert(1)</script>")
	for path, text := range map[string]string{
		"/": "Namespace", "/?q=nothing+is+called+so": "No job matches", "/?label=%3D": "cannot be read", "/queues": "default", "/nodes": "ready", "/nodes?by=queue": "queue",
		"/act?verb=delete&job=" + run: "Delete 1 job?", "/submit": "Submit jobs",
		run: "worker-0", run + "?tab=events": "Reason", run + "?tab=conditions": "Condition", run + "?tab=manifest": "kind: GenericJob", run + "/logs": "lines",
		run + "?tab=explain": "Nothing waits", run + "?tab=manifest&form=pods": "kind: Pod", paused + "?tab=explain": "somebody to resume it",
		run + "/logs?ranks=0-1,x": "is no list of ranks", run + "/logs?replica=worker-0&times=1": "lines", failed: "failed", failed + "/logs": "reversed", paused: "Paused",
	} {
		b.visit(path)
		b.shows(text)
		b.looksGood()
	}
	b.visit(run)
	b.click("#ask-delete")
	b.shows("This cannot be undone")
	b.looksGood()
	b.expect("404")
	for _, path := range []string{"/nowhere", "/jobs/default/genericjob/gone"} {
		b.visit(path)
		b.shows("All jobs")
		b.looksGood()
	}
}

func (l *live) withoutScript(t *testing.T, run, failed string) {
	b := open(t, l.console)
	b.scripts(false)
	for path, texts := range map[string][]string{
		"/?ns=" + l.Namespace: {"prime", "fails", "Running", "Failed"}, run: {"All replicas run.", "worker-1", "Pause"}, failed: {"exit code 3"},
		run + "/logs": {"line 200"}, failed + "/logs": {"<script>alert(1)</script>"}, "/queues": {"default"}, "/nodes": {"ready"}, run + "?tab=manifest": {"kind: GenericJob"},
	} {
		await.Until(t, path+" shows everything without JavaScript", func() error {
			b.visit(path)
			text := b.html()
			for _, part := range texts {
				if !strings.Contains(text, strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(part)) {
					return fmt.Errorf("%q is missing in %s", part, text)
				}
			}
			if strings.Contains(text, `class="link on"`) {
				t.Fatal("JavaScript is not switched off")
			}
			return nil
		})
	}
}

func (l *live) logs(t *testing.T, run string) {
	b := open(t, l.console)
	b.visit(run + "/logs")
	b.shows("802 lines")
	visible := func(text string) string {
		return `(box => [...box.querySelectorAll('.l')].some(l => l.textContent.includes(` + quoted(text) + `) && l.getBoundingClientRect().top >= box.getBoundingClientRect().top - 1 && l.getBoundingClientRect().bottom <= box.getBoundingClientRect().bottom + 1))(document.getElementById('log'))`
	}
	b.awaits("the end of the log is shown, because it follows", visible("line 200"))
	b.click("#error")
	b.awaits("the first error is shown", visible("ValueError: <b>bad</b>"))
	b.click("#find")
	b.press("line 77" + kb.Enter)
	b.awaits("what was searched is shown", visible("line 77"))
	b.press(kb.Enter)
	b.click("#follow")
	b.awaits("the end of the log is shown again", visible("line 200"))
	b.click("input[name=ranks]")
	b.press("1" + kb.Enter)
	b.at(run + "/logs?ranks=1&state=&find=line+77")
	b.shows("401 lines")
	if n := evaluate[int](b, "document.querySelectorAll('#log b').length"); n != 0 {
		t.Errorf("the only replica is named before %d lines", n)
	}
	got := evaluate[string](b, `fetch(document.querySelector('a[download]').href).then(r => r.text()).then(t => String(t.split('\n').length))`)
	if got != "402" {
		t.Errorf("the download has %s lines", got)
	}
}

// liveUpdate verifies that changes in the cluster appear in an open page without a reload.
func (l *live) liveUpdate(t *testing.T) {
	b := open(t, l.console)
	b.visit("/?ns=" + l.Namespace + "&q=appears")
	b.shows("No job matches", "live")
	evaluate[string](b, "document.body.marked = 'yes'")
	path := l.create(manifest, "appears")
	row := `document.querySelector('#rows a[href="` + path + `"]')?.closest('tr')`
	b.awaits("the row appears and turns to Running", row+"?.innerText.includes('Running')")
	l.t9k(t, "pause", "-n", l.Namespace, "appears")
	b.awaits("the row turns to Paused", row+"?.innerText.includes('Paused')")
	l.t9k(t, "delete", "-n", l.Namespace, "appears")
	b.awaits("the row is gone", "!document.querySelector('#rows a')")
	if evaluate[string](b, "document.body.marked ?? ''") != "yes" {
		t.Error("the page was loaded again")
	}
}

// buttons presses every button of a job's page. It cancels the first action, and then confirms each action.
func (l *live) buttons(t *testing.T, run, elastic string) {
	b := open(t, l.console)
	b.visit(run)
	b.shows("All replicas run.")
	dialog := func(verb string) string {
		return "document.getElementById('do-" + verb + "')?.matches(':popover-open')"
	}
	ask := func(verb, command string) {
		t.Helper()
		b.click("#ask-" + verb)
		b.awaits("the question is shown", dialog(verb))
		if text := evaluate[string](b, "document.getElementById('do-"+verb+"').innerText"); !strings.Contains(text, command) {
			t.Errorf("%s: the question does not name %q: %s", verb, command, text)
		}
	}
	confirm := func(verb string) { t.Helper(); b.click("#do-" + verb + " .choose button:not([type=button])") }
	ask("pause", "t9k pause -n "+l.Namespace+" genericjob/prime")
	b.click("#do-pause button[type=button]")
	b.awaits("the question is closed", "!"+dialog("pause"))
	for _, step := range [][]string{
		{"pause", "t9k pause", "is pausing", "Paused"}, {"resume", "t9k resume", "is resuming", "All replicas run."},
		{"debug-on", "t9k debug on", "is going into debug mode", "Debug"}, {"debug-off", "t9k debug off", "is leaving debug mode", "All replicas run."},
	} {
		ask(step[0], step[1])
		confirm(step[0])
		b.shows(step[2], step[3])
		if step[0] == "resume" {
			b.awaits("the timeline has the pause and no restart", "document.querySelector('.spans .paused') && document.querySelectorAll('.lane .s.running').length === 2 && !document.querySelector('.lane .s.restarting')")
			b.shows("Earlier attempts", "stopped")
		}
	}
	b.click(`.facts a[href^="/history/"]`)
	b.awaitsReload("the archive has the attempts that the pause stopped", "[...document.querySelectorAll('.attempts td:nth-child(3)')].filter(e => e.innerText.trim() === 'stopped').length >= 2 && !document.querySelector('.lane .s.failed')")
	b.visit(run)
	ask("rerun", "t9k rerun")
	b.click("#do-rerun input[name=name]")
	b.do(chromedp.SetValue("#do-rerun input[name=name]", "copied"))
	confirm("rerun")
	b.shows("copied was created")
	b.click("#rows .c-name a")
	b.shows("copied", "All replicas run.")
	ask("delete", "t9k delete -n "+l.Namespace+" genericjob/copied")
	confirm("delete")
	b.at("/")
	b.shows("genericjob/copied is being deleted.")

	b.visit(elastic)
	ask("scale", "t9k scale -n "+l.Namespace)
	b.do(chromedp.SetValue("#do-scale input[name=replicas]", "3"))
	confirm("scale")
	b.shows("is scaling to 3 replicas.")
}

// updateDuringAClick verifies that a click takes effect if its row changes between press and release, that the row then
// shows the change, and that the context menu does not stop updates.
func (l *live) updateDuringAClick(t *testing.T) {
	l.create(manifest, "held")
	b := open(t, l.console)
	b.visit("/?ns=" + l.Namespace + "&q=held")
	phase := func(is string) string { return "document.querySelector('#rows .phase')?.innerText === '" + is + "'" }
	b.awaits("the job runs", phase("Running"))
	evaluate[bool](b, `(new EventSource(location.href).addEventListener('patch', e => { window.pushed ||= e.data.includes('Paused'); }), true)`)
	x, y := b.middle("#rows input")
	b.mouse(input.DispatchMouseEventTypeMousePressed, input.MouseButtonLeft, x, y)
	l.t9k(t, "pause", "-n", l.Namespace, "held")
	b.awaits("the change was pushed", "window.pushed")
	b.mouse(input.DispatchMouseEventTypeMouseReleased, input.MouseButtonLeft, x, y)
	b.awaits("the job is selected", "document.querySelector('#rows input').checked")
	b.awaits("the row shows the change", phase("Paused"))
	b.mouse(input.DispatchMouseEventTypeMousePressed, input.MouseButtonRight, x, y)
	l.t9k(t, "resume", "-n", l.Namespace, "held")
	b.awaits("the row is updated", phase("Running"))
	l.t9k(t, "delete", "-n", l.Namespace, "held")
}

// selectedJobs pauses, resumes and deletes several jobs at once.
func (l *live) selectedJobs(t *testing.T) {
	for _, name := range []string{"many-1", "many-2"} {
		l.create(manifest, name)
	}
	b := open(t, l.console)
	list := "/?ns=" + l.Namespace + "&q=many-"
	for _, step := range [][]string{{"pause", "Running", "Paused"}, {"resume", "Paused", "Running"}, {"delete", "Running", ""}} {
		b.visit(list)
		b.awaits("both jobs are "+step[1], "[...document.querySelectorAll('#rows .phase')].filter(p => p.innerText === '"+step[1]+"').length === 2")
		b.click("#rows tr:nth-child(1) input")
		b.click("#rows tr:nth-child(2) input")
		b.click(".tools [value=" + step[0] + "]")
		b.shows("2 jobs?", "t9k "+step[0]+" -n "+l.Namespace)
		b.click("main form button")
		b.shows(step[0] + ": accepted for 2 jobs.")
	}
	b.visit(list)
	b.shows("No job matches")
}

// backButton verifies that the back button returns to the earlier pages with their filters, and that they receive
// updates again.
func (l *live) backButton(t *testing.T, run string) {
	b := open(t, l.console)
	b.visit("/")
	b.do(chromedp.SetValue("select[name=ns]", l.Namespace))
	b.click(".filter input[name=q]")
	b.press("prime" + kb.Enter)
	b.shows("1 of")
	b.click("th.c-name a")
	list := "/?ns=" + l.Namespace + "&q=prime&sort=name"
	b.at(list)
	b.click("#rows .c-name a")
	b.at(run)
	b.click(`.tabs a[href$="tab=events"]`)
	b.at(run + "?tab=events")
	back := func(to string) {
		t.Helper()
		b.do(chromedp.NavigateBack())
		b.at(to)
		b.awaits("the page is live", "document.getElementById('link').className === 'link on'")
	}
	back(run)
	back(list)
	if got := evaluate[string](b, "document.querySelector('input[name=q]').value"); got != "prime" {
		t.Errorf("the search is %q", got)
	}
	l.create(manifest, "prime-later")
	b.shows("prime-later")
	l.t9k(t, "delete", "-n", l.Namespace, "prime-later")
}

// keyboardOnly verifies that Tab reaches every control, that the focus is visible, and that a job can be paused with
// the keyboard.
func (l *live) keyboardOnly(t *testing.T) {
	path := l.create(manifest, "keys")
	b := open(t, l.console)
	l.visitJob(b, path)
	for _, page := range []string{"/?ns=" + l.Namespace, path, path + "/logs", "/queues", "/nodes", "/submit"} {
		b.visit(page)
		b.shows("t9k")
		b.reachable()
	}
	b.visit("/?ns=" + l.Namespace + "&q=keys")
	b.shows("Running")
	b.press(kb.Tab)
	if got := b.focused(); !strings.Contains(got, "Skip to the content") {
		t.Errorf("the first stop is %s", got)
	}
	b.tabTo("a keys")
	b.press(kb.Enter)
	b.at(path)
	b.shows("All replicas run.")
	b.tabTo("Pause…")
	b.press(kb.Enter)
	b.shows("Ends the pods")
	b.press(kb.Escape)
	b.awaits("the question is closed", "!document.querySelector(':popover-open')")
	if got := b.focused(); !strings.Contains(got, "Pause…") {
		t.Errorf("after Escape the focus is on %s", got)
	}
	b.press(kb.Enter)
	b.tabTo("button Pause")
	b.press(kb.Enter)
	b.shows("is pausing.", "Paused")
}

// tabTo presses Tab until the description of the focused element ends with the text.
func (b *tab) tabTo(what string) {
	b.Helper()
	var passed []string
	for range 200 {
		b.press(kb.Tab)
		got := b.focused()
		if strings.HasSuffix(got, what) {
			return
		}
		passed = append(passed, got)
	}
	b.Fatalf("Tab does not lead to %s but to\n\t%s", what, strings.Join(passed, "\n\t"))
}

// stops is JavaScript that defines the function key, which identifies a control even after an update has replaced its
// element.
const stops = `const key = e => [e.tagName, e.id, e.name, e.getAttribute('href'), e.getAttribute('aria-label'), e.tagName === 'BUTTON' ? e.innerText : ''].join(' ');`

// reachable verifies that Tab reaches every control, and that the focus is visible at each.
func (b *tab) reachable() {
	b.Helper()
	want := evaluate[[]string](b, `(() => { `+stops+` document.activeElement?.blur();
		return [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, [tabindex]')].filter(e => e.checkVisibility()).map(key);
	})()`)
	missing := map[string]bool{}
	for _, key := range want {
		missing[key] = true
	}
	for range 2*len(want) + 10 {
		if len(missing) == 0 {
			return
		}
		b.press(kb.Tab)
		at := evaluate[[]string](b, `(e => { `+stops+` return [key(e), e !== document.body && getComputedStyle(e).outlineStyle === 'none' ? 'hidden' : '']; })(document.activeElement)`)
		delete(missing, at[0])
		if at[1] != "" {
			b.Errorf("%s has the focus and does not show it", b.focused())
		}
	}
	now := evaluate[[]string](b, `(() => { `+stops+` return [...document.querySelectorAll('*')].map(key); })()`)
	maps.DeleteFunc(missing, func(key string, _ bool) bool { return !slices.Contains(now, key) })
	if len(missing) > 0 {
		b.Errorf("%s: Tab does not lead to %q", evaluate[string](b, "location.href"), slices.Collect(maps.Keys(missing)))
	}
}

// refused tests the checks of this package: looksGood finds defects, and a tab reports an inline script or style.
func (l *live) refused(t *testing.T) {
	b := open(t, l.console)
	b.visit("/")
	evaluate[string](b, `document.querySelector('nav a').style.color = '#999'; document.querySelector('main').style.width = '3000px'`)
	if wrong := strings.Join(evaluate[[]string](b, fmt.Sprintf("%s(%v)", look, minContrast)), "\n"); !strings.Contains(wrong, "contrast 2.8") || !strings.Contains(wrong, "the page is 1680 wide") {
		t.Errorf("of a pale link and a wide page is found: %s", wrong)
	}
	evaluate[bool](b, `document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="document.title=1"><div style="color:red"></div>') ?? true`)
	await.Until(b, "the browser complains about an inline script and an inline style", func() error {
		all := strings.Join(b.forget(), "\n")
		if !strings.Contains(all, "Content Security Policy") {
			return errors.New("it complains: " + all)
		}
		return nil
	})
}

// html returns the source of the current page. It works without JavaScript.
func (b *tab) html() string {
	b.Helper()
	var text string
	await.Until(b, "the page can be read, which one that is being left cannot", func() (err error) {
		text, err = chromedp.Run(b.ctx, chromedp.OuterHTML("html"))
		return err
	})
	return text
}
