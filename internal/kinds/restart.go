package kinds

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// maxCodes is the largest number of entries in a list of exit codes. The CRD has the same limit.
const maxCodes = 64

// exitCodes validates the codes that restart a replica and those that do not. No code may be in both lists.
func (v *validator) exitCodes(c *batch.ExitCodes, path *field.Path) {
	restart := v.codes(c.Restart, path.Child("restart"))
	fail := v.codes(c.Fail, path.Child("fail"))
	for _, r := range restart {
		for _, f := range fail {
			if first := max(r.First, f.First); first <= min(r.Last, f.Last) {
				v.invalid(path.Child("fail"), first, "exitCodes.restart has this code too: list each code once")
				return
			}
		}
	}
}

// codes validates a list of exit codes and ranges. It returns the entries before the first error.
func (v *validator) codes(list batch.CodeList, path *field.Path) []engine.CodeRange {
	v.atMost(maxCodes, len(list), "entries", path)
	codes, err := readCodes(list, path)
	if err != nil {
		v.errs = append(v.errs, err)
	}
	return codes
}

// readCodes parses a list of exit codes and ranges. It returns the first error and the entries before it.
func readCodes(list batch.CodeList, path *field.Path) ([]engine.CodeRange, *field.Error) {
	out := make([]engine.CodeRange, 0, len(list))
	for i, entry := range list {
		r, detail := parseCodes(entry)
		if detail != "" {
			return out, field.Invalid(path.Index(i), entry.String(), detail)
		}
		out = append(out, r)
	}
	return out, nil
}

const maxExitCode = 255

// parseCodes parses an exit code or an inclusive range of codes. It returns a non-empty detail if the entry is invalid.
func parseCodes(entry intstr.IntOrString) (r engine.CodeRange, detail string) {
	text := entry.String()
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	if entry.Type == intstr.Int { // the number may be negative
		from, to = text, text
	}
	first, err := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	switch {
	case err != nil || err2 != nil:
		return r, `not an exit code: write a number such as 137, or a range such as "128-255"`
	case first < 1 || last > maxExitCode || last < 1 || first > math.MaxInt32:
		return r, fmt.Sprintf("a failure has an exit code from 1 to %d: stay within these", maxExitCode)
	case last < first:
		return r, fmt.Sprintf(`the range runs backwards: write "%d-%d"`, last, first)
	}
	return engine.CodeRange{First: int32(first), Last: int32(last)}, ""
}

// restartsAll reports whether the failure of one replica restarts all replicas.
func restartsAll(s batch.RestartScope) bool { return s == batch.RestartJob }

func (v *validator) restartScope(s batch.RestartScope, path *field.Path) {
	if scopes := []batch.RestartScope{batch.RestartReplica, batch.RestartJob}; !slices.Contains(scopes, restartScope(s)) {
		unsupported(v, path, s, scopes...)
	}
}

// restartScope returns the scope, or its default if none is set.
func restartScope(s batch.RestartScope) batch.RestartScope {
	if s == "" {
		return batch.RestartReplica
	}
	return s
}
