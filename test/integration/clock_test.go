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

// wallClock is the path of a file that contains the error of a clock in seconds. Without a valid file, the clock is
// right. As after a step of the system's clock, only the wall time is wrong. The monotonic reading, with which Go
// compares times of one process, is right.
type wallClock string

var _ clock.PassiveClock = wallClock("")

// Now returns the current time with the clock's error.
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
	// A time with a monotonic reading stores its wall seconds in 33 bits above 30 bits of nanoseconds. No function of
	// package time changes the wall time alone.
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall = uint64(int64(*wall) + seconds<<30)
	return now
}

// Since returns the time that has passed since t according to the clock.
func (c wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
