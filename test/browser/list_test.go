package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/console/view"
)

// twins returns a scene with 230 jobs, in which each name belongs to two jobs in different namespaces.
func twins() *scene {
	s := &scene{&stage{log: logText}, time.Now().UTC().Truncate(time.Second)}
	at := func(int32) string { return "gpu-1" }
	for i := range 115 {
		for _, namespace := range []string{"language", "vision"} {
			p := play{namespace: namespace, name: fmt.Sprintf("train-%03d", i), queue: "research", user: "mei", phase: batch.JobRunning, replicas: 2, running: 2, gpus: "1",
				created: time.Duration(i+2) * hour, started: time.Duration(i+1) * hour, node: at}
			if i == 0 && namespace == "vision" {
				p.crashed = time.Minute
			}
			s.job(&p)
		}
	}
	return s
}

// TestManyJobs verifies a list with more jobs than fit on a page: the user selects all jobs of a page, begins an action
// on two of them, cancels it, and returns to that page. The browser shows the same ages as the server. On a phone, the
// user sorts the list and distinguishes two jobs of one name.
func TestManyJobs(t *testing.T) {
	c := serveStage(t, twins().stage, nil)
	t.Run("SelectAll", func(t *testing.T) {
		b := open(t, c)
		const list = "/?ns=&page=2&sort=name"
		b.visit("/?sort=name")
		b.awaits("the page has 200 jobs", "document.querySelectorAll('#rows tr').length === 200")
		b.awaits("the buttons for selected jobs are in the window", "document.querySelector('.tools button').getBoundingClientRect().bottom <= innerHeight")
		b.looksGood()
		b.visit(list)
		b.awaits("the page has the others", "document.querySelectorAll('#rows tr').length === 30")
		chosen := func(n int) string {
			return fmt.Sprintf("document.querySelectorAll('#rows input:checked').length === %d", n)
		}
		b.click("#pick-all")
		b.awaits("all are selected", chosen(30))
		b.click("#rows tr:nth-child(3) input")
		b.awaits("the box says that some are", chosen(29)+" && document.getElementById('pick-all').indeterminate")
		b.click("#pick-all")
		b.awaits("all are selected again", chosen(30))
		b.click("#pick-all")
		b.awaits("none is selected", chosen(0))
		b.click("#rows tr:nth-child(1) input")
		b.click("#rows tr:nth-child(2) input")
		b.click(".tools [value=pause]")
		b.shows("Pause 2 jobs?", "language/train-100", "vision/train-100")
		b.looksGood()
		b.click(".choose a")
		b.at("/?page=2&sort=name")
	})
	t.Run("Ages", func(t *testing.T) { // the script formats ages as the server does
		b := open(t, c)
		b.visit("/")
		for _, d := range []time.Duration{0, 59 * time.Second, time.Minute, 90 * time.Second, time.Hour - time.Second, time.Hour, 119 * time.Minute, 8*time.Hour + 50*time.Minute, 48 * time.Hour, 53 * time.Hour, 400 * 24 * time.Hour} {
			if got := evaluate[string](b, fmt.Sprintf("age(%v)", d.Seconds())); got != view.Age(d) {
				t.Errorf("%v is %q in the browser and %q on the server", d, got, view.Age(d))
			}
		}
	})
	t.Run("Phone", func(t *testing.T) {
		b := open(t, c)
		b.size(360, 800)
		b.visit("/?q=train-00")
		b.click("th.c-name a")
		b.at("/?q=train-00&sort=name")
		b.awaits("the jobs are sorted by name", "document.querySelector('#rows .c-name a').innerText === 'train-000'")
		b.click("th.c-restarts a")
		b.at("/?q=train-00&sort=restarts")
		b.click("th.c-restarts a")
		b.at("/?q=train-00&sort=-restarts")
		first := "document.querySelector('#rows tr')"
		b.awaits("the job that has restarted comes first, with its namespace", first+".innerText.includes('vision') && "+first+".querySelector('.c-restarts').checkVisibility()")
		b.awaits("each job has its namespace", "[...document.querySelectorAll('#rows .c-ns')].every(e => e.checkVisibility() && e.innerText !== '')")
		b.click("#pick-all")
		b.click(".tools [value=delete]")
		b.shows("Delete 20 jobs?")
		b.scripts(false)
		b.visit("/?q=train-00")
		b.sees("train-000")
		b.scripts(true)
	})
}

// TestNodesListTheirUsers verifies that, on a phone and with the keyboard alone, a user can open a textual list of the
// jobs that use a node.
func TestNodesListTheirUsers(t *testing.T) {
	b := open(t, serveStage(t, typical().stage, nil))
	b.size(360, 740)
	b.visit("/nodes?by=queue")
	b.do(chromedp.Focus("#node-gpu-1 .pager a"))
	b.press(kb.Enter)
	b.shows("speech/whisper-finetune", "8 pods, queue production")
	b.awaits("the address names the node", "location.search === '?by=queue&node=gpu-1' && location.hash === '#node-gpu-1'")
	b.awaits("the page is not wider than the window", "document.documentElement.scrollWidth <= innerWidth")
	b.awaits("only one node has a list", "document.querySelectorAll('.users').length === 1")
	b.do(chromedp.Focus("#node-gpu-1 .pager a"))
	b.press(kb.Enter)
	b.awaits("the list is closed", "!document.querySelector('.users') && location.search === '?by=queue'")
}
