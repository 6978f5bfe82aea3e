package engine

import (
	"iter"
	"strconv"
	"strings"
)

// EachRank calls f for the ranks of a list such as "0-41,57", but at most limit times. It skips malformed parts. It
// returns how many calls are left.
func EachRank(ranks string, limit int, f func(int)) (left int) {
	for first, last := range rankRanges(ranks) {
		for rank := first; rank <= last; rank++ {
			if limit == 0 {
				return 0
			}
			limit--
			f(rank)
		}
	}
	return limit
}

// CountRanks returns the number of ranks in a list such as "0-41,57", at most limit. It skips malformed parts.
func CountRanks(ranks string, limit int) int {
	count := 0
	for first, last := range rankRanges(ranks) {
		if last >= first { // last-first cannot overflow, because neither is negative
			count += min(last-first, limit-count-1) + 1
		}
		if count == limit {
			break
		}
	}
	return count
}

// rankRanges yields the first and the last rank of each part of a list of ranks, without malformed parts. The last rank
// may be less than the first one.
func rankRanges(ranks string) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for part := range strings.SplitSeq(ranks, ",") {
			from, to, isRange := strings.Cut(part, "-")
			first, err := strconv.Atoi(from)
			last := first
			if isRange && err == nil {
				last, err = strconv.Atoi(to)
			}
			if err == nil && first >= 0 && !yield(first, last) {
				return
			}
		}
	}
}

// FormatRanks formats ascending ranks as a list such as "0-41,57".
func FormatRanks(ranks []int) string {
	var b strings.Builder
	for i := 0; i < len(ranks); {
		k := i
		for k+1 < len(ranks) && ranks[k+1] == ranks[k]+1 {
			k++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		if k > i {
			b.WriteString("-" + strconv.Itoa(ranks[k]))
		}
		i = k + 1
	}
	return b.String()
}
