package plane

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Main runs the tests of a package, up to parallel of them at the same time unless -parallel is set, stops the shared
// control planes, and exits.
func Main(m *testing.M, parallel int, shared ...interface{ Stop() }) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	for _, s := range shared {
		s.Stop()
	}
	os.Exit(code)
}
