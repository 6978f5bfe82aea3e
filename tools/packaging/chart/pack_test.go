package chart

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

func TestPackIsReproducible(t *testing.T) {
	created := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var packed []string
	for range 2 {
		c, err := Load(root, "v1.2.3-4-gabcdef", created)
		if err != nil {
			t.Fatal(err)
		}
		path, err := Pack(c, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) != "t9k-batch-1.2.3-4-gabcdef.tgz" {
			t.Errorf("packed as %s", path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		packed = append(packed, string(data))
		again, err := loader.LoadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if again.AppVersion() != "v1.2.3-4-gabcdef" {
			t.Errorf("the packed chart has version %s", again.AppVersion())
		}
		objects, err := Render(again, nil)
		if err != nil || len(objects) < 30 {
			t.Errorf("the packed chart renders %d objects: %v", len(objects), err)
		}
	}
	if packed[0] != packed[1] {
		t.Error("two archives of one chart differ")
	}
}

func TestSemVer(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "0.1.0", "v0.1.0-3-gabc": "0.1.0-3-gabc", "v0.1.0-dirty": "0.1.0-dirty", "0123abc": "0.0.0-g0123abc", "abc-dirty": "0.0.0-gabc-dirty",
	} {
		if got := SemVer(version); got != want {
			t.Errorf("SemVer(%q) = %q, want %q", version, got, want)
		}
	}
}
