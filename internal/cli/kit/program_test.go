package kit

import (
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestPluginNamesItselfOnce verifies that the texts of a plug-in of kubectl name it "kubectl t9k", even if they already
// do, as the commands that Again returns.
func TestPluginNamesItselfOnce(t *testing.T) {
	for program, name := range map[string]string{"t9k": "t9k", "kubectl-t9k": "kubectl t9k"} {
		p := New(program, genericiooptions.NewTestIOStreamsDiscard())
		for text, want := range map[string]string{
			"t9k get":                        name + " get",
			`see "t9k get"`:                  `see "` + name + ` get"`,
			"it exists; kubectl t9k sweep a": "it exists; " + name + " sweep a",
			"the t9k-scheduler of t9k":       "the t9k-scheduler of t9k",
		} {
			if got := p.Named(text); got != want || p.Named(got) != want {
				t.Errorf("%s: %q becomes %q and then %q", program, text, got, p.Named(got))
			}
		}
	}
}
