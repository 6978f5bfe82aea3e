package kinds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// maxRuleMembers bounds the total number of replicas named in a job's finish rules, counting repetitions. Without it, a
// few lines of ranges could take gigabytes of memory.
const maxRuleMembers = 1_000_000

// ruleReader reads the finish rules of a job, the success rules first.
type ruleReader struct {
	job *engine.Job
	// members is the number of replicas that the rules name so far.
	members int
}

// rules converts finish rules. If a rule is invalid, the conversion is uninterpretable, because the other rules alone
// would mean something else.
func (c *conversion) rules(r *ruleReader, rules []batch.FinishRule) []engine.Rule {
	if len(rules) == 0 {
		return nil
	}
	converted := make([]engine.Rule, 0, len(rules))
	for _, rule := range rules {
		if r.members > maxRuleMembers {
			break
		}
		if to, errs := r.read(rule, nil); len(errs) == 0 {
			converted = append(converted, to)
		}
	}
	c.uninterpretable = c.uninterpretable || len(converted) < len(rules)
	return converted
}

// rules validates finish rules.
func (v *validator) rules(r *ruleReader, rules []batch.FinishRule, path *field.Path) {
	v.atMost(maxRules, len(rules), "rules", path)
	for i, rule := range rules {
		if r.members > maxRuleMembers {
			return
		}
		_, errs := r.read(rule, path.Index(i))
		v.errs = append(v.errs, errs...)
	}
}

// read converts one rule and returns its errors.
func (r *ruleReader) read(rule batch.FinishRule, path *field.Path) (engine.Rule, field.ErrorList) {
	names := sortedKeys(rule)
	var members []engine.Member
	var errs field.ErrorList
	for _, name := range names {
		role := roleIndex(r.job, name)
		if role < 0 {
			errs = append(errs, field.Invalid(path.Key(name), name, unknownRole(r.job, name)))
			continue
		}
		var err *field.Error
		if members, err = r.ranks(members, role, rule[name], path.Key(name)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(members) == 0 && len(errs) == 0 {
		errs = append(errs, field.Invalid(path, ruleText(rule, names), "the rule names no replica: name at least one, or remove the rule"))
	}
	return engine.Rule{Text: ruleText(rule, names), Members: members}, errs
}

// ranks appends the replicas of one role that a rule names. An empty list names all replicas of the role. ranks stops
// at the first error in the list.
func (r *ruleReader) ranks(to []engine.Member, role int, list batch.RankList, path *field.Path) ([]engine.Member, *field.Error) {
	x := &r.job.Roles[role]
	if len(list) == 0 {
		return r.span(to, role, 0, x.Replicas-1, path)
	}
	var seen []bool
	if len(list) > 1 {
		seen = make([]bool, x.Replicas)
	}
	for i, entry := range list {
		first, last, detail := parseRanks(entry)
		if detail == "" && last >= x.Replicas {
			detail = outOfRange(x)
		}
		for rank := first; detail == "" && seen != nil && rank <= last; rank++ {
			if seen[rank] {
				detail = fmt.Sprintf("rank %d is in this list twice: name each rank once", rank)
			}
			seen[rank] = true
		}
		if detail != "" {
			return to, field.Invalid(path.Index(i), entry.String(), detail)
		}
		var err *field.Error
		if to, err = r.span(to, role, first, last, path); err != nil {
			return to, err
		}
	}
	return to, nil
}

// span appends the members of a range of ranks. It returns an error when the rules exceed maxRuleMembers, and appends
// nothing from then on.
func (r *ruleReader) span(to []engine.Member, role, first, last int, path *field.Path) ([]engine.Member, *field.Error) {
	if r.members > maxRuleMembers {
		return to, nil
	}
	n := last - first + 1
	r.members += n
	if r.members > maxRuleMembers {
		return to, field.Invalid(path, r.members, fmt.Sprintf("up to here the finish rules name replicas %d times, and the limit is %d: "+
			"use fewer rules or shorter ranges", r.members, maxRuleMembers))
	}
	to = slices.Grow(to, n)
	for rank := first; rank <= last; rank++ {
		to = append(to, engine.Member{Role: role, Rank: rank})
	}
	return to, nil
}

// parseRanks parses an entry of a rank list: an integer, a string that holds one, or an inclusive range such as "0-3".
// It returns a non-empty detail if the entry is invalid.
func parseRanks(entry intstr.IntOrString) (first, last int, detail string) {
	if entry.Type == intstr.Int {
		if entry.IntVal < 0 {
			return 0, 0, "ranks count from 0: write 0 or more"
		}
		return int(entry.IntVal), int(entry.IntVal), ""
	}
	from, to, isRange := strings.Cut(entry.StrVal, "-")
	first, ok := parseRank(from)
	if !isRange && ok {
		return first, first, ""
	}
	last, ok2 := parseRank(to)
	switch {
	case !ok || !ok2:
		return 0, 0, `not a rank: write a number such as 3, or a range such as "0-3"`
	case first > last:
		return 0, 0, fmt.Sprintf(`the range runs backwards: write "%d-%d"`, last, first)
	}
	return first, last, ""
}

// maxRankDigits is the largest number of digits in a rank, which is more than any job needs. The CRD's pattern has the
// same limit.
const maxRankDigits = 7

// parseRank parses a rank, which consists of up to maxRankDigits decimal digits. It returns false for any other text.
func parseRank(digits string) (int, bool) {
	if len(digits) == 0 || len(digits) > maxRankDigits {
		return 0, false
	}
	n := 0
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

// ruleText returns the rule as JSON. names are the rule's keys in order.
func ruleText(rule batch.FinishRule, names []string) string {
	b := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, name), ':', '[')
		for j, entry := range rule[name] {
			if j > 0 {
				b = append(b, ',')
			}
			if entry.Type == intstr.Int {
				b = strconv.AppendInt(b, int64(entry.IntVal), 10)
			} else {
				b = strconv.AppendQuote(b, entry.StrVal)
			}
		}
		b = append(b, ']')
	}
	return string(append(b, '}'))
}
