package jobcontroller

import (
	"time"

	"golang.org/x/time/rate"
)

// baseLatency is how long a request takes an API server that has little to do.
const baseLatency = 10 * time.Millisecond

// limiter bounds requests over all jobs that may wait. The longer the API server takes for them the fewer it gets, since it
// has more important ones to serve: down to one per second.
type limiter struct{ *rate.Limiter }

// newLimiter returns a limiter that lets so many requests through per second, and as many at once.
func newLimiter(perSecond int) limiter {
	return limiter{rate.NewLimiter(rate.Limit(perSecond), perSecond)}
}

// charge makes a request that was let through at began pay for what it took until now.
func (l limiter) charge(began, now time.Time) {
	l.ReserveN(now, min(l.Burst(), int(now.Sub(began)/baseLatency)))
}
