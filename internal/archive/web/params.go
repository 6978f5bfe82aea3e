package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/kinds"
)

// params are the parameters of a request. err is the first error.
type params struct {
	url.Values
	err error
}

func (p *params) wrong(name, wanted string) {
	if p.err == nil {
		p.err = archive.Refuse(http.StatusBadRequest, "the parameter %s is %q: give %s", name, p.Get(name), wanted)
	}
}

// kind returns the name of the kind of job that the parameter kind names without regard to case; empty without the
// parameter.
func (p *params) kind() string {
	name := p.Get("kind")
	if name == "" {
		return ""
	}
	for i := range kinds.All {
		if strings.EqualFold(kinds.All[i].Name, name) {
			return kinds.All[i].Name
		}
	}
	p.wrong("kind", "a kind of job")
	return ""
}

func (p *params) time(name string, otherwise time.Time) time.Time {
	text := p.Get(name)
	if text == "" {
		return otherwise
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		p.wrong(name, "a time such as 2026-01-31T08:00:00Z")
	}
	return t.UTC()
}

func (p *params) duration(name string) time.Duration {
	text := p.Get(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		p.wrong(name, "a duration of at least a second, such as 24h")
		return 0
	}
	return d
}

func (p *params) truth(name string) bool {
	return p.oneOf(name, "false", "true") == "true"
}

func (p *params) count(name string, otherwise, limit int) int {
	text := p.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > limit {
		p.wrong(name, "a number from 1 to "+strconv.Itoa(limit))
		return otherwise
	}
	return n
}

func (p *params) cursor(name string) archive.Cursor {
	c, err := archive.ParseCursor(p.Get(name))
	if err != nil {
		p.wrong(name, "the value of next in an earlier response")
	}
	return c
}

// oneOf returns the value of a parameter; without the parameter, the first possible value. A value that is not possible
// is an error.
func (p *params) oneOf(name string, possible ...string) string {
	text := p.Get(name)
	if text == "" {
		return possible[0]
	}
	if !slices.Contains(possible, text) {
		p.wrong(name, "one of "+strings.Join(possible, ", "))
	}
	return text
}
