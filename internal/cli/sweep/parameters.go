package sweep

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxJobs is the largest number of jobs of a sweep.
const maxJobs = 1000

// parameter is a parameter of a sweep with its values.
type parameter struct {
	name   string
	values []string
}

// setting is one value of a parameter.
type setting struct{ name, value string }

// settings are the values of all parameters of one job.
type settings []setting

func (s settings) String() string {
	var parts []string
	for _, one := range s {
		parts = append(parts, one.name+"="+one.value)
	}
	return strings.Join(parts, " ")
}

// byName returns the values by the names of their parameters.
func (s settings) byName() map[string]string {
	values := map[string]string{}
	for _, one := range s {
		values[one.name] = one.value
	}
	return values
}

var (
	// parameterName matches names that are valid both as environment variables and in ${NAME}.
	parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// integerRange matches a range of whole numbers without leading zeros.
	integerRange = regexp.MustCompile(`^(0|[1-9][0-9]*)-(0|[1-9][0-9]*)$`)
)

// parseParameters parses the values of the flag --set, such as lr=0.1,0.01 or seed=1-5.
func parseParameters(sets []string) ([]parameter, error) {
	if len(sets) == 0 {
		return nil, errors.New("name a parameter and its values: --set NAME=VALUE,VALUE or --set NAME=1-5")
	}
	var all []parameter
	count := 1
	for _, set := range sets {
		name, list, found := strings.Cut(set, "=")
		switch {
		case !found:
			return nil, fmt.Errorf("--set %s: write NAME=VALUE,VALUE", set)
		case !parameterName.MatchString(name):
			return nil, fmt.Errorf("--set %s: %q is not a name of a parameter: use letters, digits and '_', and no digit at the beginning", set, name)
		case slices.ContainsFunc(all, func(p parameter) bool { return p.name == name }):
			return nil, fmt.Errorf("--set %s: %s has values already; write all of them in one --set, separated by commas", set, name)
		}
		values, err := parseValues(list)
		if err != nil {
			return nil, fmt.Errorf("--set %s: %w", set, err)
		}
		all = append(all, parameter{name, values})
		if count *= len(values); count > maxJobs {
			return nil, fmt.Errorf("the parameters up to %s make %d jobs, and a sweep has at most %d: split it", name, count, maxJobs)
		}
	}
	return all, nil
}

// parseValues parses a list of values and ranges.
func parseValues(list string) ([]string, error) {
	var values []string
	for item := range strings.SplitSeq(list, ",") {
		more := []string{item}
		if m := integerRange.FindStringSubmatch(item); m != nil {
			var err error
			if more, err = numbers(m[1], m[2]); err != nil {
				return nil, err
			}
		}
		for _, value := range more {
			switch {
			case value == "":
				return nil, errors.New("a value is empty")
			case slices.Contains(values, value):
				return nil, fmt.Errorf("%s is there twice", value)
			}
			values = append(values, value)
		}
	}
	return values, nil
}

// numbers returns the whole numbers of a range, including both ends. It returns an error if the range is empty or has
// more than maxJobs numbers.
func numbers(from, to string) ([]string, error) {
	a, err := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	switch {
	case err != nil || err2 != nil || b-a >= maxJobs:
		return nil, fmt.Errorf("%s-%s has more values than a sweep has jobs, which is at most %d", from, to, maxJobs)
	case b < a:
		return nil, fmt.Errorf("%s-%s is empty: write the smaller number first", from, to)
	}
	var all []string
	for n := a; n <= b; n++ {
		all = append(all, strconv.Itoa(n))
	}
	return all, nil
}

// combine returns every combination of the values. The last parameter changes fastest.
func combine(parameters []parameter) []settings {
	all := []settings{nil}
	for _, p := range parameters {
		var longer []settings
		for _, s := range all {
			for _, value := range p.values {
				longer = append(longer, append(slices.Clone(s), setting{p.name, value}))
			}
		}
		all = longer
	}
	return all
}

// digestLength is the number of characters of a digest in a name. They represent 40 bits, so the probability that two
// of 1000 jobs get the same name is about 1 in 2 million.
const digestLength = 8

// jobName returns the name of a job of a sweep. It depends only on the sweep and the settings, so that a sweep that is
// started again, or with more values, finds the jobs that already exist.
func jobName(sweep string, s settings) string {
	sorted := slices.SortedFunc(slices.Values(s), func(a, b setting) int { return strings.Compare(a.name, b.name) })
	return sweep + "-" + digest(fmt.Sprintf("%q", sorted))[:digestLength]
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}
