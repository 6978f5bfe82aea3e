package queue

import (
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/prometheus/common/model"
)

// durationText matches the texts that the CRD accepts as maxDuration.
var durationText = regexp.MustCompile(`^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$`)

// ParseDuration parses a queue's maxDuration, such as 1w2d or 90m. A year has 365 days. An empty text and 0 mean no
// limit and return 0. For more than about 292 years, the result is the longest time.Duration. ParseDuration returns an
// error for a text that the CRD refuses.
func ParseDuration(s string) (time.Duration, error) {
	if !durationText.MatchString(s) {
		return 0, fmt.Errorf("%q is not a duration: write it like 1w2d or 90m", s)
	}
	if s == "" {
		return 0, nil
	}
	d, err := model.ParseDuration(s)
	if err != nil { // the text is well-formed, so the error is an overflow
		return math.MaxInt64, nil
	}
	return time.Duration(d), nil
}
