package jobcontroller

import (
	"time"

	"golang.org/x/time/rate"
)

// baseLatency is the duration of a request to an API server that is not busy.
const baseLatency = 10 * time.Millisecond

// limiter limits the rate of requests that may wait, over all jobs. It lowers the rate as requests take longer, down
// to about one per second, to leave the API server to more important requests.
type limiter struct{ *rate.Limiter }

// newLimiter returns a limiter of this many requests per second, with a burst of the same number.
func newLimiter(perSecond int) limiter {
	return limiter{rate.NewLimiter(rate.Limit(perSecond), perSecond)}
}

// charge takes one token for each baseLatency that a request has taken since it was admitted at began, up to the
// burst.
func (l limiter) charge(began, now time.Time) {
	l.ReserveN(now, min(l.Burst(), int(now.Sub(began)/baseLatency)))
}
