package server

import (
	"sync"
	"time"

	"tensorstack.dev/batch/internal/console/page"
)

// renderings are the newest renderings of pages that look the same to several users, by address and scope. A change that
// a hundred users see is rendered once.
type renderings struct {
	mu     sync.Mutex
	newest map[string]*rendering
}

// rendering is the part of a page that changes.
type rendering struct {
	// version is that of the cache before it was rendered, and began is when.
	version uint64
	began   time.Time
	once    sync.Once

	sections []page.Section
	// gone is true if what the page shows is gone, or may no longer be seen.
	gone bool
	// took is how long rendering took.
	took time.Duration
	// private is true if the rights of the user changed meanwhile, so that nobody else may get it.
	private bool
}

// current returns the rendering for a key if it has the version and is not older than half the interval at which texts
// change with time alone. Otherwise it returns a new one, and forgets those that nobody uses any more.
func (r *renderings) current(key string, version uint64, now time.Time) *rendering {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.newest[key]; found != nil && found.version == version && now.Sub(found.began) <= moveInterval/2 {
		return found
	}
	if r.newest == nil {
		r.newest = map[string]*rendering{}
	}
	for k, old := range r.newest {
		if now.Sub(old.began) > moveInterval {
			delete(r.newest, k)
		}
	}
	made := &rendering{version: version, began: now}
	r.newest[key] = made
	return made
}

// rendered returns what a feed shows now.
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

// render renders the parts of a page that change.
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
