package apiproxy

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

// failures holds the ways in which a write fails, by name.
var failures = []struct {
	name string
	fate Fate
}{
	{"409", Fate{Code: http.StatusConflict}}, {"429", Fate{Code: http.StatusTooManyRequests}}, {"500", Fate{Code: http.StatusInternalServerError}},
	{"made but unanswered", Fate{Unanswered: true}}, {"lost", Fate{Lost: true}},
}

// FailWrites makes a percentage of the program's writes fail from now on: with a conflict, with too many requests, with
// an internal error, by losing the answer, and by losing the request. It calls Decide. counts returns the number of all
// writes, and the numbers of failed writes by the name of the failure.
func (p *Proxy) FailWrites(percent int) (counts func() (writes int, failed map[string]int)) {
	random := rand.New(rand.NewPCG(5, 6))
	writes, failed := 0, map[string]int{}
	p.Decide(func(r *http.Request) Fate {
		if !IsWrite(r) {
			return Fate{}
		}
		if writes++; random.IntN(100) >= percent {
			return Fate{}
		}
		f := failures[random.IntN(len(failures))]
		failed[f.name]++
		return f.fate
	})
	return func() (int, map[string]int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		copied := make(map[string]int, len(failed))
		for name, n := range failed {
			copied[name] = n
		}
		return writes, copied
	}
}

// LostWatches repeatedly closes the watches of a program.
type LostWatches struct {
	// Stop stops closing watches. It can be called several times.
	Stop func()

	p              *Proxy
	ended, refused int
	// continued holds the paths of watches that the proxy forwards. It answers the first watch of every other path
	// with 410 Gone. If continued is nil, it forwards all watches.
	continued map[string]bool
}

// LoseWatches closes all watches of the program at an interval, until the test ends or calls Stop. It calls Decide, and
// so does Stop. Every other time, the proxy then answers the next watch of each resource with 410 Gone, as if the API
// server no longer had the events that the program missed, so that the program must list everything.
func (p *Proxy) LoseWatches(t testing.TB, interval time.Duration) *LostWatches {
	t.Helper()
	l := &LostWatches{p: p}
	p.Decide(l.decide)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(interval):
				l.lose()
			}
		}
	}()
	l.Stop = sync.OnceFunc(func() {
		close(quit)
		<-done
		p.Decide(nil)
	})
	t.Cleanup(l.Stop)
	return l
}

func (l *LostWatches) decide(r *http.Request) Fate {
	if !IsWatch(r) || l.continued == nil || l.continued[r.URL.Path] {
		return Fate{}
	}
	l.continued[r.URL.Path] = true
	l.refused++
	return Fate{Code: http.StatusGone}
}

func (l *LostWatches) lose() {
	n := l.p.BreakWatches()
	l.p.Do(func() {
		l.ended += n
		if l.continued == nil {
			l.continued = map[string]bool{}
		} else {
			l.continued = nil
		}
	})
}

// Counts returns how many watches were closed, and how many were answered with 410 Gone afterwards.
func (l *LostWatches) Counts() (ended, refused int) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.ended, l.refused
}
