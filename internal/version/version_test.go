package version

import (
	"runtime"
	"testing"
)

func TestLineNamesVersionAndPlatform(t *testing.T) {
	platform := runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
	for _, tc := range []struct {
		got, want string
	}{
		{Line("t9k"), "t9k devel (" + platform + ")\n"},
		{Line("t9k-scheduler", "kube-scheduler v1.36.3"), "t9k-scheduler devel (kube-scheduler v1.36.3, " + platform + ")\n"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
