package kindtest

import (
	"maps"
	"math"
	"slices"
)

// choices are bytes that select mutations. They may be random or come from a fuzzer.
type choices []byte

// next returns a number below n; 0 once the bytes are used up.
func (c *choices) next(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := int((*c)[0])
	*c = (*c)[1:]
	return b % n
}

// odd lists values with a special meaning in some field, and meaningless values.
var odd = []any{
	"", "a", "worker", "Ünïcode", "-", "0", "3", "0-3", "3-0", "0-9999999", "99999999999999999999", "train-2", "with.dot",
	"$(rank)", "$(type)-$(rank)-$(rank)", "$$(rank)", "$$$(rank)", "$(", "$", "$()", "$(HOME)", "$(replicas[worker])",
	"$(replicas[])", "$(service.worker[0].host)", "$(service.worker[$(rank)].host)", "$(service.port[http])", "$(service.[].host)",
	float64(-1), float64(0), float64(1), float64(7), float64(math.MaxInt32), float64(math.MinInt32), 0.5,
	true, false, nil, map[string]any{}, []any{}, []any{"x"}, map[string]any{"worker": []any{float64(0)}},
}

// odd returns a copy of one of the odd values, because a later mutation may change its content.
func (c *choices) odd() any { return deepCopy(odd[c.next(len(odd))]) }

// mutate returns a JSON value with one change. It may modify v.
func mutate(v any, c *choices) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		keys := slices.Sorted(maps.Keys(v))
		key := keys[c.next(len(keys))]
		switch c.next(8) {
		case 0:
			delete(v, key)
		case 1:
			v[key] = c.odd()
		default:
			v[key] = mutate(v[key], c)
		}
		return v
	case []any:
		if len(v) == 0 {
			break
		}
		i := c.next(len(v))
		switch c.next(8) {
		case 0:
			return slices.Delete(v, i, i+1)
		case 1:
			return append(v, deepCopy(v[i]))
		case 2:
			return append(v, c.odd())
		default:
			v[i] = mutate(v[i], c)
			return v
		}
	}
	return c.odd()
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[key] = deepCopy(value)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = deepCopy(v[i])
		}
		return list
	}
	return v
}
