package kinds

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// ruleOf parses a rule from JSON.
func ruleOf(t testing.TB, text string) batch.FinishRule {
	t.Helper()
	var rule batch.FinishRule
	if err := json.Unmarshal([]byte(text), &rule); err != nil {
		t.Fatal(err)
	}
	return rule
}

func readRules(rules ...batch.FinishRule) ([]engine.Rule, field.ErrorList) {
	c := &conversion{job: trainJob()}
	v := validator{conversion: c}
	v.rules(&ruleReader{job: c.job}, rules, field.NewPath("spec", "successRules"))
	return c.rules(&ruleReader{job: c.job}, rules), v.errs
}

func TestRanksAreParsed(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		want       engine.Rule
	}{
		{"an integer", `{"worker":[1]}`, engine.Rule{Text: `{"worker":[1]}`, Members: []engine.Member{{Role: 0, Rank: 1}}}},
		{"an integer in quotes", `{"worker":["1"]}`, engine.Rule{Text: `{"worker":["1"]}`, Members: []engine.Member{{Role: 0, Rank: 1}}}},
		{"a range with both its ends", `{"worker":["0-2"]}`, engine.Rule{Text: `{"worker":["0-2"]}`,
			Members: []engine.Member{{Role: 0, Rank: 0}, {Role: 0, Rank: 1}, {Role: 0, Rank: 2}}}},
		{"a range of one", `{"ps":["1-1"]}`, engine.Rule{Text: `{"ps":["1-1"]}`, Members: []engine.Member{{Role: 1, Rank: 1}}}},
		{"every replica of a role", `{"ps":[]}`, engine.Rule{Text: `{"ps":[]}`,
			Members: []engine.Member{{Role: 1, Rank: 0}, {Role: 1, Rank: 1}}}},
		{"ranks and ranges in any order", `{"worker":[2,"0-1"]}`, engine.Rule{Text: `{"worker":[2,"0-1"]}`,
			Members: []engine.Member{{Role: 0, Rank: 2}, {Role: 0, Rank: 0}, {Role: 0, Rank: 1}}}},
		{"several roles, in the order of their names", `{"worker":[0],"ps":["1"]}`, engine.Rule{Text: `{"ps":["1"],"worker":[0]}`,
			Members: []engine.Member{{Role: 1, Rank: 1}, {Role: 0, Rank: 0}}}},
		{"a role without replicas beside one that has some", `{"idle":[],"ps":[0]}`, engine.Rule{Text: `{"idle":[],"ps":[0]}`,
			Members: []engine.Member{{Role: 1, Rank: 0}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, errs := readRules(ruleOf(t, c.rule))
			if diff := cmp.Diff([]engine.Rule{c.want}, got); diff != "" || len(errs) > 0 {
				t.Errorf("errors %v (-want +got)\n%s", errs, diff)
			}
		})
	}
}

func TestTooLargeRulesAreRefused(t *testing.T) {
	job := &engine.Job{Roles: []engine.Role{{Type: "worker", Replicas: 10_000}}}
	c := &conversion{job: job}
	v := validator{conversion: c}
	rules := make([]batch.FinishRule, 1000)
	for i := range rules {
		rules[i] = batch.FinishRule{"worker": nil}
	}
	v.rules(&ruleReader{job: job}, rules, field.NewPath("spec", "failureRules"))
	want := "spec.failureRules[100][worker]: Invalid value: 1010000: up to here the finish rules name replicas 1010000 times, and the " +
		"limit is 1000000: use fewer rules or shorter ranges"
	if len(v.errs) != 1 || v.errs[0].Error() != want {
		t.Errorf("got %v, want only %q", v.errs, want)
	}
	if n := len(c.rules(&ruleReader{job: job}, rules)); n != 100 || !c.uninterpretable {
		t.Errorf("%d rules were converted, interpretable: %t", n, !c.uninterpretable)
	}
}

// FuzzRanks checks a parsed list of ranks against the engine's assumptions, and its text against encoding/json.
func FuzzRanks(f *testing.F) {
	for _, s := range []string{`[]`, `[0]`, `["0-2"]`, `[2,"0-1"]`, `["2-0"]`, `[-1]`, `["x"]`, `[0,0]`, `["0-9999999"]`, `["-"]`, `[""]`, `["1-2-3"]`} {
		f.Add(s, "worker")
	}
	f.Fuzz(func(t *testing.T, list, role string) {
		var ranks batch.RankList
		if json.Unmarshal([]byte(list), &ranks) != nil {
			return
		}
		rule := batch.FinishRule{role: ranks}
		converted, errs := readRules(rule)
		if len(errs) == 0 {
			checkMembers(t, ranks, role, converted[0])
			checkText(t, rule, converted[0].Text)
		} else if len(converted) > 0 || errs[0].Detail == "" {
			t.Errorf("%s was refused and converted, or refused without an error: %v", list, errs)
		}
	})
}

// checkMembers checks that the replicas that a rule of one role names exist, are named once, and include the integers
// in its list of ranks.
func checkMembers(t *testing.T, ranks batch.RankList, role string, rule engine.Rule) {
	named := map[int]bool{}
	for _, m := range rule.Members {
		r := trainJob().Roles[m.Role]
		if r.Type != role || m.Rank < 0 || m.Rank >= r.Replicas || named[m.Rank] {
			t.Errorf("%s names %v", rule.Text, m)
		}
		named[m.Rank] = true
	}
	for _, entry := range ranks {
		if entry.Type == intstr.Int && !named[int(entry.IntVal)] {
			t.Errorf("%s lacks %d", rule.Text, entry.IntVal)
		}
	}
}

// checkText compares the text of a rule of one role with the output of encoding/json. An unset list counts as an empty
// one.
func checkText(t *testing.T, rule batch.FinishRule, text string) {
	for role, ranks := range rule {
		if ranks == nil {
			rule[role] = batch.RankList{}
		}
	}
	want, err := json.Marshal(rule)
	if err != nil || string(want) != text {
		t.Errorf("the rule's text is %s, want %s (%v)", text, want, err)
	}
}
