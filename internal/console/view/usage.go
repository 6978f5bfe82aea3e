package view

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/archive"
)

// UsageFilter selects the contents of the usage page. The URL of the page contains it.
type UsageFilter struct {
	By archive.By
	// Resource is the resource to show; empty selects the one that MostUsed returns. Namespace is the only namespace to
	// count; empty for all.
	Resource, Namespace string
	// From and To have the format of the URL: days in UTC such as 2026-01-31, which include the whole day, or times in
	// RFC 3339. An empty From selects the last defaultDays days up to To, and an empty To means now.
	From, To string
}

// ParseUsageFilter reads a filter from the values of a URL. A missing or unknown By becomes the queue. Query checks
// From and To.
func ParseUsageFilter(v url.Values) UsageFilter {
	get := func(key string) string { return strings.TrimSpace(v.Get(key)) }
	f := UsageFilter{By: archive.By(get("by")), Resource: get("resource"), Namespace: get("ns"), From: get("from"), To: get("to")}
	if !slices.Contains(bys, f.By) {
		f.By = bys[0]
	}
	return f
}

var bys = []archive.By{archive.ByQueue, archive.ByNamespace, archive.ByUser}

func (f UsageFilter) values() url.Values {
	v := url.Values{}
	by := string(f.By)
	if f.By == bys[0] {
		by = ""
	}
	for key, value := range map[string]string{"by": by, "resource": f.Resource, "ns": f.Namespace, "from": f.From, "to": f.To} {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v
}

// Href returns the path of the page with this filter.
func (f UsageFilter) Href() string { return pathWith(UsagePath, f.values()) }

const day = 24 * time.Hour

// defaultDays is the number of days, including the last one, that the page shows by default.
const defaultDays = 30

// Query returns the query for the filter. Its steps are hours, days or periods of 7 days from the first day, in UTC.
// Query replaces an invalid From or To by its default, and a To in the future by now. problem tells the user that a
// value is invalid, or that Query replaced From because it is not before To or too far from it; empty otherwise.
func (f UsageFilter) Query(now time.Time) (q archive.UsageQuery, problem string) {
	now = now.UTC().Truncate(time.Second)
	q = archive.UsageQuery{By: f.By, Namespace: f.Namespace}
	from, problem := timeOf(f.From, false)
	to, wrong := timeOf(f.To, true)
	problem = cmp.Or(problem, wrong)
	if to.IsZero() || to.After(now) {
		to = now
	}
	if from.IsZero() {
		from = to.Add(-time.Nanosecond).Truncate(day).Add(-(defaultDays - 1) * day)
	}
	if !from.Before(to) {
		from, problem = to.Add(-day), "The time ends before it begins, so the last day of it is shown."
	}
	switch whole := to.Sub(from); {
	case whole <= 2*day:
		q.Step = time.Hour
	case whole <= 100*day:
		q.Step = day
	default:
		q.Step = 7 * day
	}
	if oldest := to.Add(-maxUsageSteps * q.Step); from.Before(oldest) {
		from, problem = oldest, "The time is too long, so the end of it is shown."
	}
	q.From, q.To = from.Truncate(min(q.Step, day)), to
	return q, problem
}

// maxUsageSteps is the largest number of steps. Rounding From down to a day may add one more.
const maxUsageSteps = 300

// UsagePart is a part of a bar. Y, counted from the top, and H are percentages of the height.
type UsagePart struct {
	Y, H   float64
	Colour int
	Title  string
}

// UsageBar is the usage in one step. X and W are percentages of the width.
type UsageBar struct {
	X, W  float64
	Parts []UsagePart
}

// UsageKey is the total of a queue, namespace or user. Share is its percentage of the sum of all totals.
type UsageKey struct {
	Link
	Hours  string
	Share  float64
	Colour int
}

// UsageTick is a mark on the vertical axis. Y is a percentage of the height, counted from the top.
type UsageTick struct {
	Y    float64
	Text string
}

// UsagePage shows the usage of one resource.
type UsagePage struct {
	Tabs, Bys, Spans []Link
	// By is the key of the sums, for the column header.
	By             string
	Filter         UsageFilter
	Resources      []string
	Resource, Unit string
	Total          string
	Bars           []UsageBar
	Ticks          []Tick
	Lines          []UsageTick
	Keys           []UsageKey
	// CSV is the path of the same sums as a CSV file.
	CSV     string
	Problem string
}

// usageColours is the number of keys that have their own colour.
const usageColours = 10

// Usage returns the page of a filter. all holds the archive's answer to the query q, and problem was returned with q.
func Usage(f UsageFilter, q *archive.UsageQuery, all []archive.Usage, problem string, now time.Time) UsagePage {
	p := UsagePage{Tabs: historyTabs(UsagePath), Filter: f, Problem: problem, By: strings.ToUpper(string(f.By[:1])) + string(f.By[1:])}
	for _, by := range bys {
		other := f
		other.By = by
		p.Bys = append(p.Bys, Link{"by " + string(by), other.Href(), by == f.By})
	}
	for _, days := range []int{1, 7, defaultDays, 90, 365} {
		other := f
		other.From, other.To = now.UTC().AddDate(0, 0, 1-days).Format(time.DateOnly), ""
		text := map[int]string{1: "today", 365: "year"}[days]
		p.Spans = append(p.Spans, Link{cmp.Or(text, fmt.Sprintf("%d days", days)), other.Href(), other == f || days == defaultDays && f.From == "" && f.To == ""})
	}
	p.Resource, p.Resources = mostUsed(all, f.Resource)
	p.Unit = unitOf(p.Resource)
	own := SumsOf(all, p.Resource)
	p.CSV = strings.Replace(f.Href(), UsagePath, UsagePath+".csv", 1)
	p.sum(own)
	p.draw(q, own)
	return p
}

// SumsOf returns the sums of one resource.
func SumsOf(all []archive.Usage, resource string) []archive.Usage {
	var own []archive.Usage
	for _, u := range all {
		if u.Resource == resource {
			own = append(own, u)
		}
	}
	return own
}

// MostUsed returns the resource that the filter selects. If it selects none, MostUsed returns the resource that
// mostUsed chooses from all.
func (f UsageFilter) MostUsed(all []archive.Usage) string {
	resource, _ := mostUsed(all, f.Resource)
	return resource
}

// mostUsed returns the selected resource and the names of all resources in the sums. If none is selected, it returns
// the most used extended resource, such as a GPU. If there is none, it returns cpu, and without cpu nvidia.com/gpu.
// The names always include the returned resource.
func mostUsed(all []archive.Usage, chosen string) (resource string, names []string) {
	hours, set := map[string]float64{}, map[string]bool{}
	for _, u := range all {
		hours[u.Resource] += u.Hours
		set[u.Resource] = true
	}
	names = choices(set, chosen)
	if chosen != "" {
		return chosen, names
	}
	for _, name := range names {
		if strings.Contains(name, "/") && (resource == "" || hours[name] > hours[resource]) {
			resource = name
		}
	}
	if resource == "" && set["cpu"] {
		resource = "cpu"
	}
	if resource == "" {
		resource = "nvidia.com/gpu"
		names = append(names, resource)
	}
	return resource, names
}

// unitOf returns the unit of a resource's hours, for example GPU-hours.
func unitOf(resource string) string {
	switch {
	case resource == "cpu":
		return "core-hours"
	case resource == "memory":
		return "GiB-hours"
	case strings.HasSuffix(resource, "gpu"):
		return "GPU-hours"
	}
	return "hours of " + resource
}

// sum sets Total and the totals by key, largest first. The largest totals get their own colours.
func (p *UsagePage) sum(own []archive.Usage) {
	hours, total := map[string]float64{}, 0.
	for _, u := range own {
		hours[u.Key] += u.Hours
		total += u.Hours
	}
	p.Total = Hours(total)
	var keys []string
	for key := range hours {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(hours[b], hours[a]), strings.Compare(a, b)) })
	for i, key := range keys {
		k := UsageKey{Link: Link{Text: key}, Hours: Hours(hours[key]), Share: round(100 * hours[key] / total), Colour: i}
		if i >= usageColours {
			k.Colour = otherColour
		}
		if key != "" {
			k.Href = map[archive.By]HistoryFilter{archive.ByQueue: {Queue: key}, archive.ByNamespace: {Namespace: key}, archive.ByUser: {User: key}}[p.Filter.By].Href()
		}
		p.Keys = append(p.Keys, k)
	}
}

// draw computes the bars and the axes. It does nothing if the time span of the query is empty.
func (p *UsagePage) draw(q *archive.UsageQuery, own []archive.Usage) {
	steps := int((q.To.Sub(q.From) + q.Step - 1) / q.Step)
	if steps <= 0 {
		return
	}
	most := make([]float64, steps)
	at := func(u *archive.Usage) int { return max(0, min(steps-1, int(u.From.Sub(q.From)/q.Step))) }
	hours := map[string][]float64{}
	for i := range own {
		u := &own[i]
		if hours[u.Key] == nil {
			hours[u.Key] = make([]float64, steps)
		}
		hours[u.Key][at(u)] += u.Hours
		most[at(u)] += u.Hours
	}
	top, line := ceiling(slices.Max(most))
	for h := line; h <= top; h += line {
		p.Lines = append(p.Lines, UsageTick{round(100 * (1 - h/top)), Hours(h)})
	}
	width := 100 / float64(steps)
	for step := range steps {
		b := UsageBar{X: round(width * (float64(step) + 0.1)), W: round(width * 0.8)}
		when, y := stepText(q, step), 100.
		for _, k := range p.Keys {
			h := hours[k.Text][step]
			if h <= 0 {
				continue
			}
			height := 100 * h / top
			y -= height
			b.Parts = append(b.Parts, UsagePart{Y: round(max(0, y)), H: round(height), Colour: k.Colour, Title: fmt.Sprintf("%s, %s: %s %s", when, cmp.Or(k.Text, "none"), Hours(h), p.Unit)})
		}
		p.Bars = append(p.Bars, b)
	}
	each := (steps + 7) / 8
	for step := 0; step < steps; step += each {
		p.Ticks = append(p.Ticks, Tick{round(width * (float64(step) + 0.5)), stepText(q, step)})
	}
}

// stepText returns the name of a step, which is the time of its start.
func stepText(q *archive.UsageQuery, step int) string {
	from := q.From.Add(time.Duration(step) * q.Step)
	if q.Step < day {
		return from.Format("2 Jan 15:04")
	}
	return from.Format("2 Jan")
}

// ceiling returns the upper end of the axis for the largest value, and the distance between its lines.
func ceiling(most float64) (top, line float64) {
	if most <= 0 {
		return 1, 1
	}
	line = math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{0.2, 0.25, 0.5, 1, 2} {
		if most/(line*f) <= 5 {
			line *= f
			break
		}
	}
	return line * math.Ceil(most/line-1e-9), line
}

// Hours formats a number of hours: below 10 with three significant digits, otherwise with one decimal, unless it is 0,
// and with thousands separators. With this precision, the displayed parts of a sum add up to it, apart from rounding.
func Hours(h float64) string {
	switch {
	case h == 0:
		return "0"
	case h < 10:
		return strconv.FormatFloat(h, 'g', 3, 64)
	}
	text, fraction, _ := strings.Cut(strconv.FormatFloat(h, 'f', 1, 64), ".")
	if fraction == "0" {
		return separated(text)
	}
	return separated(text) + "." + fraction
}

// Thousands formats a non-negative number with thousands separators.
func Thousands(n int) string { return separated(strconv.Itoa(n)) }

// separated adds thousands separators to the digits of a non-negative integer.
func separated(text string) string {
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
