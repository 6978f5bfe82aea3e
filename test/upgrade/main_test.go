package upgrade

import (
	"testing"

	"tensorstack.dev/batch/test/kit/plane"
)

func TestMain(m *testing.M) { plane.Main(m, 1) }
