package queue

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

var durationPart = regexp.MustCompile(`([0-9]+)(ms|[ywdhms])`)

var durationUnits = map[string]time.Duration{
	"y": 365 * 24 * time.Hour, "w": 7 * 24 * time.Hour, "d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second, "ms": time.Millisecond,
}

// ParseDuration parses a queue's maxDuration, such as 1w2d or 90m. A year has 365 days. An empty text and 0 mean no
// limit and return 0. The result is at most about 292 years, the longest time.Duration.
func ParseDuration(s string) (time.Duration, error) {
	if s == "" || s == "0" {
		return 0, nil
	}
	parts := durationPart.FindAllStringSubmatch(s, -1)
	total, length := 0.0, 0
	for _, p := range parts {
		n, err := strconv.ParseFloat(p[1], 64)
		if err != nil {
			return 0, fmt.Errorf("reading the duration %q: %w", s, err)
		}
		total += n * float64(durationUnits[p[2]])
		length += len(p[0])
	}
	if length != len(s) {
		return 0, fmt.Errorf("%q is no duration: write it like 1w2d or 90m", s)
	}
	if total >= math.MaxInt64 {
		return math.MaxInt64, nil
	}
	return time.Duration(total), nil
}
