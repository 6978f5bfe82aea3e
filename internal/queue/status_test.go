package queue

import (
	"math"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	tests := map[string]time.Duration{
		"": 0, "0": 0, "90m": 90 * time.Minute, "1w2d": 9 * 24 * time.Hour, "1y": 365 * 24 * time.Hour, "1h2m3s4ms": time.Hour + 2*time.Minute + 3*time.Second + 4*time.Millisecond,
		"5ms": 5 * time.Millisecond, "999999y": math.MaxInt64,
	}
	for s, want := range tests {
		if got, err := ParseDuration(s); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"1", "1x", "m1", "1 h"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: %v, want an error", s, got)
		}
	}
}
