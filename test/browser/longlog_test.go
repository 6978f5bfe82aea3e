package browser

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

const (
	// longLog is the number of lines of a long log, failedAt the number of its only line with an error, and longestAt
	// the number of its longest line.
	longLog, failedAt, longestAt = 100_000, 61_234, 123
	// keptLines is the largest number of lines that a page keeps, and maxRows the largest number of lines that have DOM
	// elements at the same time.
	keptLines, maxRows = 200_000, 1_200
)

// logLines returns the lines of a log from number from to number to.
func logLines(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		text := "step %06d  loss 2.3172  lr 0.00031  2,941 img/s"
		if n == longestAt {
			text += strings.Repeat("  tensor(0.1)", 40)
		}
		if n == failedAt {
			text = "ValueError: bad batch at step %06d "
		}
		at := time.Date(2026, 11, 20, 8, 0, 0, n*1000, time.UTC).Add(time.Duration(n) * 100 * time.Millisecond)
		fmt.Fprintf(&b, "%s "+text+"\n", at.Format("2006-01-02T15:04:05.000000000Z"), n)
	}
	return b.String()
}

// talkative returns a scene with a job whose only pod has a long log.
func talkative() *scene {
	s := &scene{&stage{log: logLines(1, longLog), written: make(chan string)}, time.Now()}
	s.node("gpu-0", true)
	s.job(&play{"vision", "talkative", "", "amelie", batch.JobRunning, 1, 1, "1", hour, hour, 0, 0, "", func(int32) string { return "gpu-0" }})
	return s
}

const talkativeLogs = "/jobs/vision/genericjob/talkative/logs"

// lineVisible returns an expression that is true if a line of the log is within the visible part of the log.
func lineVisible(n int) string {
	return fmt.Sprintf(`(box => {
		const all = box.getBoundingClientRect();
		return [...box.querySelectorAll('.l')].some(l => {
			const r = l.getBoundingClientRect();
			return l.textContent.includes('step %06d ') && r.top >= all.top - 1 && r.bottom <= all.bottom + 1;
		});
	})(document.getElementById('log'))`, n)
}

// sampledRows is an expression that scrolls through the log in 50 steps. Its value is the largest number of lines that
// had DOM elements at once, and the number of steps at which lines were missing from the visible part.
const sampledRows = `(async () => {
	const box = document.getElementById('log'), frame = () => new Promise(requestAnimationFrame);
	let rows = 0, gaps = 0;
	for (let i = 0; i <= 50; i++) {
		box.scrollTop = box.scrollHeight * i / 50;
		for (let i = 0; i < 3; i++) await frame();
		const all = box.getBoundingClientRect(), lines = [...box.querySelectorAll('.l')];
		rows = Math.max(rows, lines.length);
		const visible = lines.filter(l => l.getBoundingClientRect().bottom > all.top && l.getBoundingClientRect().top < all.bottom);
		if (visible.length < Math.floor(box.clientHeight / 20)) gaps++;
	}
	return [rows, gaps];
})()`

// allLines is an expression that scrolls through the log. Its value is the numbers of the first and of the last line,
// the number of lines, and the number of gaps between them. It enlarges the box of the log meanwhile, so that a few
// steps suffice.
const allLines = `(async () => {
	const box = document.getElementById('log'), seen = new Set(), frame = () => new Promise(requestAnimationFrame), step = 40_000;
	box.style.height = step + 'px';
	for (let top = 0; top < box.scrollHeight; top += step) {
		box.scrollTop = top;
		for (let i = 0; i < 4; i++) await frame();
		for (const l of box.querySelectorAll('.l')) seen.add(Number(l.textContent.match(/step ([0-9]+)/)?.[1]));
	}
	box.style.height = '';
	const sorted = [...seen].sort((a, b) => a - b);
	return [sorted[0], sorted[sorted.length - 1], sorted.length, sorted.filter((n, i) => i > 0 && n !== sorted[i - 1] + 1).length];
})()`

func TestLongLogStaysUsable(t *testing.T) {
	s := talkative()
	b := open(t, serveStage(t, s.stage, nil))
	b.visit(talkativeLogs)
	b.shows("100,000 lines, live")
	b.awaits("the last line is shown, because the page follows", lineVisible(longLog))
	s.written <- logLines(longLog+1, longLog+1)
	b.awaits("a line is shown as soon as it is written", lineVisible(longLog+1))
	b.click("#error")
	b.awaits("the first error is shown", lineVisible(failedAt))
	b.do(chromedp.Focus("#log"))
	b.shortcut("/")
	b.press("STEP 000123 " + kb.Enter)
	b.awaits("what was searched is shown", lineVisible(longestAt))
	b.shows("1 of 1")
	b.awaits("a line that is wider than the page can be read", `(box => {
		box.scrollLeft = 1e6;
		const end = [...box.querySelectorAll('.l span')].find(l => l.textContent.includes('step 000123 ')).getBoundingClientRect().right;
		return box.scrollLeft > 0 && end <= box.getBoundingClientRect().right;
	})(document.getElementById('log'))`)
	s.written <- logLines(longLog+2, longLog+2)
	b.shows("100,002 lines, live")
	b.awaits("the page stays where the user has looked", lineVisible(longestAt))
	if got := evaluate[[]int](b, sampledRows); got[0] > maxRows || got[1] > 0 {
		t.Errorf("%d lines have elements at once, and %d visible parts were not full", got[0], got[1])
	}
	if got, want := evaluate[[]int](b, allLines), []int{1, longLog + 2, longLog + 2, 0}; !slices.Equal(got, want) {
		t.Errorf("the first line, the last line, all lines and gaps are %d, want %d", got, want)
	}
}

// TestLogStateIsInTheAddress verifies that a reload shows the same line, search and timestamps.
func TestLogStateIsInTheAddress(t *testing.T) {
	s := talkative()
	b := open(t, serveStage(t, s.stage, nil))
	b.visit(talkativeLogs)
	b.shows("100,000 lines, live")
	b.click("#find")
	b.press("9  LOSS" + kb.Enter + kb.Enter)
	b.shows("2 of 10,000")
	b.click("#times")
	b.do(chromedp.Reload())
	b.shows("2 of 10,000")
	b.awaits("the line is shown again", lineVisible(19))
	b.awaits("the search and the timestamps are there again", `document.getElementById('find').value === '9  LOSS' && document.getElementById('times').checked`)
	b.awaits("the search goes on behind the line", `(document.getElementById('next').click(), document.getElementById('hits').textContent === '3 of 10,000')`)

	b.visit(talkativeLogs)
	b.shows("100,000 lines, live")
	b.click("#error")
	b.awaits("the first error is shown", lineVisible(failedAt))
	b.do(chromedp.Reload())
	b.awaits("the first error is shown again", lineVisible(failedAt))
	b.awaits("the page does not follow", `!document.getElementById('follow').checked`)
	b.click("#follow")
	b.awaits("the last line is shown", lineVisible(longLog))
	b.do(chromedp.Reload())
	b.awaits("the last line is shown again, because the page follows", lineVisible(longLog)+` && document.getElementById('follow').checked`)
}

// TestLogIsBounded verifies that a page keeps a limited number of lines of a log that grows.
func TestLogIsBounded(t *testing.T) {
	s := talkative()
	b := open(t, serveStage(t, s.stage, nil))
	b.visit(talkativeLogs)
	b.shows("100,000 lines, live")
	const last, removed = keptLines + 20_001, 20_200 // whole chunks are removed
	s.written <- logLines(longLog+1, last)
	b.shows("220,001 lines, the last 199,801 here")
	b.awaits("the last line is shown", lineVisible(last))
	if got, want := evaluate[[]int](b, allLines), []int{removed + 1, last, last - removed, 0}; !slices.Equal(got, want) {
		t.Errorf("the first line, the last line, all lines and gaps are %d, want %d", got, want)
	}
	b.click("#follow") // allLines has scrolled away from the last line
	b.awaits("the last line is shown again", lineVisible(last))
	b.do(chromedp.Focus("#log"))
	b.press(kb.PageUp)
	b.awaits("whoever leaves the end by keys does not follow", "!document.getElementById('follow').checked")
	b.click("#find")
	b.press("step 200000 " + kb.Enter)
	b.awaits("a line is found", lineVisible(200_000))
	s.written <- logLines(last+1, last+500)
	b.shows("220,501 lines")
	b.awaits("it stays when older lines are removed", lineVisible(200_000))
}

// TestSearchGoesBothWaysThroughALog verifies that the search goes forwards and backwards through the lines with a text.
func TestSearchGoesBothWaysThroughALog(t *testing.T) {
	s := talkative()
	b := open(t, serveStage(t, s.stage, nil))
	b.visit(talkativeLogs)
	b.shows("100,000 lines, live")
	b.click("#find")
	b.press("4321 " + kb.Enter)
	at := func(n, of, line int) {
		t.Helper()
		b.awaits("the place among the lines is shown", fmt.Sprintf("document.getElementById('hits').innerText === '%d of %d'", n, of))
		b.awaits("the line is shown", lineVisible(line))
	}
	at(1, 10, 4_321)
	b.click("#next")
	at(2, 10, 14_321)
	b.click("#previous")
	b.click("#previous") // it wraps around
	at(10, 10, 94_321)
	b.do(chromedp.Focus("#log"))
	b.shortcut("n")
	at(1, 10, 4_321)
	b.shortcut("N")
	at(10, 10, 94_321)
	s.written <- logLines(104_321, 104_321)
	b.awaits("a line that comes counts", "document.getElementById('hits').innerText === '10 of 11'")
	b.shortcut("/")
	if got := evaluate[string](b, "document.getElementById('find').value"); got != "4321 " {
		t.Errorf("the search holds %q", got)
	}
	b.press("nothing has this" + kb.Enter)
	b.awaits("it says that there is none", "document.getElementById('hits').innerText === 'no line'")
}

// TestLogShowsTimesOnRequest verifies that a page shows the times of lines if its address says so.
func TestLogShowsTimesOnRequest(t *testing.T) {
	s := talkative()
	s.log = logLines(1, 50)
	b := open(t, serveStage(t, s.stage, nil))
	b.visit(talkativeLogs)
	b.shows("50 lines, live")
	const first = "2026-11-20 08:00:00.100 step 000001"
	text := `document.getElementById('log').innerText.replaceAll('\n', ' ')`
	if got := evaluate[string](b, text); strings.Contains(got, "08:00:00") || strings.Contains(got, "worker-0") {
		t.Errorf("times or the name of the only replica are shown: %.200s", got)
	}
	b.click("#times")
	b.awaits("the times are shown", text+".includes("+quoted(first)+")")
	b.at(talkativeLogs + "?times=1")
	b.looksGood()
	b.scripts(false)
	b.visit(talkativeLogs + "?times=1")
	if html := b.html(); !strings.Contains(html, "<i>2026-11-20 08:00:00.100</i>") {
		t.Errorf("without JavaScript: %s", html)
	}
	b.scripts(true)
	b.visit(talkativeLogs + "?times=1")
	b.awaits("the times are shown", text+".includes("+quoted(first)+")")
	b.click("#times")
	b.at(talkativeLogs)
}

// link is a proxy in front of a console, whose connections the test can cut.
type link struct {
	*httptest.Server
	down atomic.Bool
}

// behindLink puts a link in front of a console. It returns the link and a console with the link's address.
func behindLink(t *testing.T, c *console) (*link, *console) {
	t.Helper()
	to, err := url.Parse(c.base)
	if err != nil {
		t.Fatal(err)
	}
	l := &link{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0)}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.down.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	return l, &console{kubeconfig: c.kubeconfig, base: l.URL, first: strings.Replace(c.first, c.base, l.URL, 1)}
}

func (l *link) cut() {
	l.down.Store(true)
	l.CloseClientConnections()
}

// TestLogGoesOnAfterALostConnection verifies that a page shows every line once although its connection is lost while
// lines are written.
func TestLogGoesOnAfterALostConnection(t *testing.T) {
	s := talkative()
	s.log = logLines(1, 1000)
	l, c := behindLink(t, serveStage(t, s.stage, nil))
	b := open(t, c)
	b.expect("net::ERR_")
	b.visit(talkativeLogs)
	b.shows("1,000 lines, live")
	last := 1000
	for range 3 {
		l.cut()
		b.shows("the connection is lost, trying again")
		s.grow(logLines(last+1, last+5))
		last += 5
		l.down.Store(false)
		b.shows(fmt.Sprintf("1,%03d lines, live", last-1000))
		s.written <- logLines(last+1, last+1)
		s.grow(logLines(last+1, last+1))
		last++
		b.shows(fmt.Sprintf("1,%03d lines, live", last-1000))
	}
	if got, want := evaluate[[]int](b, allLines), []int{1, last, last, 0}; !slices.Equal(got, want) {
		t.Errorf("the first line, the last line, all lines and gaps are %d, want %d", got, want)
	}
}

// TestJumpEndsScrolling verifies that a jump to a line works while the page still scrolls because of a key press.
func TestJumpEndsScrolling(t *testing.T) {
	s := talkative()
	b := open(t, serveStage(t, s.stage, nil))
	b.visit(talkativeLogs)
	for _, jump := range []struct {
		to   string
		line int
	}{{"follow", longLog}, {"error", failedAt}} {
		b.awaits("the last line is shown", lineVisible(longLog))
		b.do(chromedp.Focus("#log"))
		evaluate[bool](b, `(box => {
			window.jumped = false;
			box.onscroll = () => {
				if (jumped || box.scrollHeight - box.scrollTop - box.clientHeight < 60) return; // it has not left the end yet
				jumped = true;
				document.getElementById(`+quoted(jump.to)+`).click();
			};
			return true;
		})(document.getElementById('log'))`)
		b.press(kb.PageUp)
		b.awaits("the key has scrolled", "jumped")
		if !evaluate[bool](b, `new Promise(done => {
			const box = document.getElementById('log');
			let top = box.scrollTop, rested = 0;
			const look = () => {
				rested = box.scrollTop === top ? rested + 1 : 0;
				top = box.scrollTop;
				rested < 60 ? requestAnimationFrame(look) : done(`+lineVisible(jump.line)+`);
			};
			look();
		})`) {
			t.Errorf("#%s: the page scrolled on after the jump", jump.to)
		}
	}
	b.press(kb.PageUp)
	b.awaits("the keys scroll from there", "!("+lineVisible(failedAt)+")")
}

// BenchmarkLongLog measures the time from the start of the navigation until the last line of a long log is shown, the
// memory of the page, and how smoothly the page scrolls: the longest task of its thread, and the longest time between
// two frames.
func BenchmarkLongLog(b *testing.B) {
	c := serveStage(b, talkative().stage, nil)
	tab := open(b, c)
	var load, loadTask, scrollTask, frame, heap []float64
	for b.Loop() {
		tab.visit("/")
		tab.visit(talkativeLogs)
		load = append(load, evaluate[float64](tab, `new Promise(done => {
			const look = () => `+lineVisible(longLog)+` ? done(performance.now()) : requestAnimationFrame(look);
			look();
		})`))
		loadTask = append(loadTask, evaluate[float64](tab, longestTask))
		got := evaluate[[]float64](tab, `(async () => {
			const box = document.getElementById('log'), from = performance.now(), wheel = new WheelEvent('wheel', {deltaY: -100});
			box.dispatchEvent(wheel);
			let last = await new Promise(requestAnimationFrame), worst = 0;
			for (let i = 0; i < 600; i++) {
				box.scrollTop -= i < 300 ? 120 : 6000;
				const now = await new Promise(requestAnimationFrame);
				worst = Math.max(worst, now - last);
				last = now;
			}
			return [worst, from];
		})()`)
		frame = append(frame, got[0])
		scrollTask = append(scrollTask, evaluate[float64](tab, strings.ReplaceAll(longestTask, "from = 0", fmt.Sprintf("from = %f", got[1]))))
		heap = append(heap, tab.heap())
	}
	b.ReportMetric(median(load), "load-ms")
	b.ReportMetric(median(loadTask), "longest-task-of-load-ms")
	b.ReportMetric(median(scrollTask), "longest-task-of-scrolling-ms")
	b.ReportMetric(median(frame), "longest-frame-of-scrolling-ms")
	b.ReportMetric(median(heap)/(1<<20), "heap-MiB")
	b.ReportMetric(0, "ns/op")
}

// longestTask is an expression for the duration in milliseconds of the longest task that blocked the page since the
// time from; 0 if no task took 50 ms.
const longestTask = `new Promise(done => {
	const from = 0, watch = new PerformanceObserver(list => {
		watch.disconnect();
		done(Math.max(0, ...list.getEntries().filter(e => e.startTime >= from).map(e => e.duration)));
	});
	watch.observe({type: 'longtask', buffered: true});
	setTimeout(() => done(0), 500);
})`

// heap returns the number of bytes that the script of the page uses after a garbage collection.
func (b *tab) heap() float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	usage, err := chromedp.Call(ctx, runtime.GetHeapUsage, cdp.Empty{})
	if err != nil {
		b.Fatal(err)
	}
	return usage.UsedSize
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
