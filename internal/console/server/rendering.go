package server

import (
	"sync"
	"time"

	"tensorstack.dev/batch/internal/console/page"
)

// renderings caches the latest rendering of each page by address and scope. Users with the same scope share a
// rendering, so a change that a hundred users see is rendered once.
type renderings struct {
	mu     sync.Mutex
	newest map[string]*rendering
}

// rendering is a rendering of the parts of a page that change.
type rendering struct {
	// version is the version of the page's topics when the rendering started, and began is the time of the start.
	version uint64
	began   time.Time
	once    sync.Once

	sections []page.Section
	// gone is true if the object of the page was deleted, or the viewer may no longer see it.
	gone bool
	// took is the duration of the rendering.
	took time.Duration
	// private is true if the user's rights changed during the rendering. Other users must not see a private rendering.
	private bool
}

// current returns the cached rendering for a key if it has the given version and is not older than half of
// refreshInterval. Otherwise current caches and returns a new, empty rendering, and removes expired renderings.
func (r *renderings) current(key string, version uint64, now time.Time) *rendering {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.newest[key]; found != nil && found.version == version && now.Sub(found.began) <= refreshInterval/2 {
		return found
	}
	if r.newest == nil {
		r.newest = map[string]*rendering{}
	}
	for k, old := range r.newest {
		if now.Sub(old.began) > refreshInterval {
			delete(r.newest, k)
		}
	}
	made := &rendering{version: version, began: now}
	r.newest[key] = made
	return made
}

// rendered returns the current rendering of a feed's page.
func (s *visit) rendered(f *feed) *rendering {
	c := f.shown()
	if c.scope == nil {
		return s.render(c, &rendering{began: time.Now()})
	}
	scope, mine := c.scope(), false
	r := s.renderings.current(f.address+"\n"+scope, s.Cache.Version(c.topics...), time.Now())
	r.once.Do(func() {
		mine = true
		s.render(c, r)
		r.private = c.scope() != scope
	})
	if r.private && !mine {
		return s.render(c, &rendering{began: time.Now()})
	}
	return r
}

// render renders the parts of a page that change into r, and returns r.
func (s *visit) render(c content, r *rendering) *rendering {
	data := c.make(r.began)
	if data == nil {
		r.gone = true
		if gone, err := s.pages.Instead(c.gone()); err == nil {
			r.sections = []page.Section{gone}
		}
		return r
	}
	sections, err := s.pages.Sections(c.template, data)
	if err == nil {
		r.sections = sections
	}
	r.took = time.Since(r.began)
	return r
}
