package kinds

import "testing"

func TestEnabledTakesPrecedenceOverEnable(t *testing.T) {
	on, off := true, false
	for _, c := range []struct {
		name            string
		enabled, enable *bool
		want            bool
	}{
		{"unset", nil, nil, false},
		{"on", &on, nil, true},
		{"off", &off, nil, false},
		{"on by the older spelling", nil, &on, true},
		{"off by the older spelling", nil, &off, false},
		{"off, though on by the older spelling", &off, &on, false},
		{"on, though off by the older spelling", &on, &off, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := switchedOn(c.enabled, c.enable); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
