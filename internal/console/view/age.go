package view

import (
	"fmt"
	"time"
)

// units are the units of durations, largest first. A year has 365 days.
var units = []struct {
	of   time.Duration
	name string
}{{365 * day, "y"}, {day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}

// Age returns a duration in its two largest units, without the second unit if it is zero: 45s, 1m30s, 2h, 8h50m, 3d4h.
// It drops smaller units, and treats negative durations as zero. The script formats ages in the same way.
func Age(d time.Duration) string {
	d = max(0, d)
	for i, u := range units[:len(units)-1] {
		if d < u.of {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.of, u.name)
		if rest := d % u.of / units[i+1].of; rest > 0 {
			text += fmt.Sprintf("%d%s", rest, units[i+1].name)
		}
		return text
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
