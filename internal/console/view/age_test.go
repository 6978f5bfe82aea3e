package view

import (
	"testing"
	"time"
)

func TestAgeHasAtMostTwoUnits(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Hour, "45s": 45*time.Second + 999*time.Millisecond, "1m": time.Minute, "1m30s": 90 * time.Second, "2m1s": 121 * time.Second, "59m59s": time.Hour - 1,
		"1h": time.Hour + 59*time.Second, "1h59m": 119 * time.Minute, "7h50m": 7*time.Hour + 50*time.Minute, "8h50m": 8*time.Hour + 50*time.Minute,
		"2d": 48*time.Hour + 59*time.Minute, "9d5h": 9*day + 5*time.Hour, "1y": 365*day + 23*time.Hour, "2y3d": 733 * day,
	} {
		if got := Age(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
