package integration

import (
	"os"
	"strconv"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// asClock is the environment variable that names the file of the operator's wallClock.
const asClock = "T9K_TEST_CLOCK"

// wallClock is a clock that is wrong by as many seconds as the file of this name says. As after a step of the system's
// clock, only the wall time of what it returns is wrong: the monotonic reading, by which Go compares times of the same
// process, is not. If there is no such file, the clock is right.
type wallClock string

var _ clock.PassiveClock = wallClock("")

// Now returns the wrong time.
func (c wallClock) Now() time.Time {
	now := time.Now()
	text, err := os.ReadFile(string(c))
	if err != nil {
		return now
	}
	seconds, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return now
	}
	// A time with a monotonic reading has its wall seconds in 33 bits above 30 bits of nanoseconds. No function of
	// package time changes one and not the other.
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall = uint64(int64(*wall) + seconds<<30)
	return now
}

// Since returns the time since t by the wrong clock.
func (c wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
