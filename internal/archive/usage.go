package archive

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Held is an attempt with the queue, namespace and user to which it is charged.
type Held struct {
	Attempt
	Namespace, Queue, User string
}

// By selects the key of usage sums.
type By string

// Keys of usage sums.
const (
	ByQueue     By = "queue"
	ByNamespace By = "namespace"
	ByUser      By = "user"
)

// Usage is the use of one resource by the attempts of one queue, namespace or user between two times.
type Usage struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Key is the queue, namespace or user; empty for jobs that have none.
	Key      string `json:"key"`
	Resource string `json:"resource"`
	// Hours is amount × time: GPU-hours for a GPU, core-hours for cpu, GiB-hours for memory.
	Hours float64 `json:"hours"`
}

// Span is a time span, divided into steps. A step of zero means that the whole span is one step.
type Span struct {
	From, To time.Time
	Step     time.Duration
}

// maxSteps is the largest number of steps of a span.
const maxSteps = 2000

// Check returns an error if the span is empty, has a negative step or has too many steps.
func (s Span) Check() error {
	switch {
	case !s.From.Before(s.To):
		return fmt.Errorf("the span of time is empty: it begins at %s and ends at %s", s.From.Format(time.RFC3339), s.To.Format(time.RFC3339))
	case s.Step < 0, s.Step > 0 && (s.To.Sub(s.From)-1)/s.Step >= maxSteps: // the last step may be shorter
		return fmt.Errorf("a span of time has up to %d steps", maxSteps)
	}
	return nil
}

// Sums adds up the usage of attempts. Call Add for each attempt, then Rows.
type Sums struct {
	Span Span
	By   By
	// Extended omits cpu and memory.
	Extended bool
	sums     map[sumKey]float64
}

type sumKey struct {
	step          int
	key, resource string
}

// Add adds the usage of an attempt.
func (s *Sums) Add(h *Held) {
	if s.sums == nil {
		s.sums = map[sumKey]float64{}
	}
	key := ""
	switch s.By {
	case ByQueue:
		key = h.Queue
	case ByNamespace:
		key = h.Namespace
	case ByUser:
		key = h.User
	}
	for name, q := range h.Requests {
		if amount := amountOf(name, q.AsApproximateFloat64(), s.Extended); amount > 0 {
			s.each(h, func(step int, held time.Duration) { s.sums[sumKey{step, key, string(name)}] += amount * held.Hours() })
		}
	}
}

// each calls f for each step in which the attempt held its resources, with the time for which it held them in this
// step.
func (s *Sums) each(h *Held, f func(step int, held time.Duration)) {
	if s.Span.Step == 0 {
		if held := h.Held(s.Span.From, s.Span.To); held > 0 {
			f(0, held)
		}
		return
	}
	first := 0
	if h.Scheduled.After(s.Span.From) {
		first = int(h.Scheduled.Sub(s.Span.From) / s.Span.Step)
	}
	for step := first; ; step++ {
		from, to := s.bounds(step)
		if !from.Before(s.Span.To) || h.Outcome != "" && !from.Before(h.Ended) {
			return
		}
		if held := h.Held(from, to); held > 0 {
			f(step, held)
		}
	}
}

func (s *Sums) bounds(step int) (from, to time.Time) {
	if s.Span.Step == 0 {
		return s.Span.From, s.Span.To
	}
	from = s.Span.From.Add(time.Duration(step) * s.Span.Step)
	to = from.Add(s.Span.Step)
	if to.After(s.Span.To) {
		to = s.Span.To
	}
	return from, to
}

// Rows returns the sums, sorted by time, key and resource.
func (s *Sums) Rows() []Usage {
	all := make([]Usage, 0, len(s.sums))
	for k, hours := range s.sums {
		from, to := s.bounds(k.step)
		all = append(all, Usage{from, to, k.key, k.resource, hours})
	}
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

const gibibyte = 1 << 30

// amountOf returns a quantity in the unit of its hours (items, cores or GiB); 0 for resources that are not counted.
func amountOf(name corev1.ResourceName, amount float64, extended bool) float64 {
	switch {
	case strings.Contains(string(name), "/"):
		return amount
	case extended:
		return 0
	case name == corev1.ResourceCPU:
		return amount
	case name == corev1.ResourceMemory:
		return amount / gibibyte
	}
	return 0
}

// WriteCSV writes usage as CSV with a header.
func WriteCSV(w io.Writer, by By, all []Usage) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"from", "to", string(by), "resource", "hours"}}
	for _, u := range all {
		rows = append(rows, []string{u.From.UTC().Format(time.RFC3339), u.To.UTC().Format(time.RFC3339), inert(u.Key), u.Resource, strconv.FormatFloat(u.Hours, 'f', 6, 64)})
	}
	if err := c.WriteAll(rows); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

// inert escapes a name so that no spreadsheet interprets it as a formula. User names can contain any characters that
// the cluster accepts.
func inert(name string) string {
	if name != "" && strings.ContainsRune("=+-@\t\r", rune(name[0])) {
		return "'" + name
	}
	return name
}
