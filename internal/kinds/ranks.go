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

// maxRuleMembers bounds the replicas that the finish rules of a job name, each time they are named counted: a few lines of
// ranges could ask for gigabytes otherwise.
const maxRuleMembers = 1_000_000

// rules lowers finish rules. The rules that are in order are returned even where others are refused.
func (l *lowering) rules(rules []batch.FinishRule, path *field.Path) []engine.Rule {
	if len(rules) == 0 {
		return nil
	}
	l.atMost(maxRules, len(rules), "rules", path)
	lowered := make([]engine.Rule, 0, len(rules))
	for i, rule := range rules {
		if l.ruleMembers > maxRuleMembers {
			break
		}
		if r, ok := l.rule(rule, path.Index(i)); ok {
			lowered = append(lowered, r)
		}
	}
	l.senseless = l.senseless || len(lowered) < len(rules)
	return lowered
}

func (l *lowering) rule(rule batch.FinishRule, path *field.Path) (engine.Rule, bool) {
	before := len(l.errs)
	names := sortedKeys(rule)
	var members []engine.Member
	for _, name := range names {
		role := l.roleIndex(name)
		if role < 0 {
			l.invalid(path.Key(name), name, unknownRole(l.job, name))
			continue
		}
		members = l.members(members, role, rule[name], path.Key(name))
	}
	if len(members) == 0 && len(l.errs) == before {
		l.invalid(path, ruleText(rule, names), "the rule names no replica: name at least one, or remove the rule")
	}
	return engine.Rule{Text: ruleText(rule, names), Members: members}, len(l.errs) == before
}

// members appends the replicas of one role that a rule names. It stops at the first fault of the list.
func (l *lowering) members(to []engine.Member, role int, list batch.RankList, path *field.Path) []engine.Member {
	r := &l.job.Roles[role]
	if len(list) == 0 {
		return l.span(to, role, 0, r.Replicas-1, path)
	}
	var seen []bool
	if len(list) > 1 {
		seen = make([]bool, r.Replicas)
	}
	for i, entry := range list {
		first, last, detail := parseRanks(entry)
		if detail == "" && last >= r.Replicas {
			detail = outOfRange(r)
		}
		for rank := first; detail == "" && seen != nil && rank <= last; rank++ {
			if seen[rank] {
				detail = fmt.Sprintf("rank %d is in this list twice: name each rank once", rank)
			}
			seen[rank] = true
		}
		if detail != "" {
			l.invalid(path.Index(i), entry.String(), detail)
			return to
		}
		to = l.span(to, role, first, last, path)
	}
	return to
}

func (l *lowering) span(to []engine.Member, role, first, last int, path *field.Path) []engine.Member {
	if l.ruleMembers > maxRuleMembers {
		return to
	}
	n := last - first + 1
	l.ruleMembers += n
	if l.ruleMembers > maxRuleMembers {
		l.invalid(path, l.ruleMembers, fmt.Sprintf("up to here the finish rules name replicas %d times, and the limit is %d: "+
			"use fewer rules or shorter ranges", l.ruleMembers, maxRuleMembers))
		return to
	}
	to = slices.Grow(to, n)
	for rank := first; rank <= last; rank++ {
		to = append(to, engine.Member{Role: role, Rank: rank})
	}
	return to
}

// parseRanks reads an entry of a rank list: an integer, a string that holds one, or an inclusive range such as "0-3".
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

// maxRankDigits is more than any job needs, and what the CRD's pattern allows too.
const maxRankDigits = 7

// parseRank reads a rank: decimal digits and nothing else.
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

// ruleText is the rule as JSON. Names are its keys in order.
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
