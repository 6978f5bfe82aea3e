package podlog

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// stampOf returns the time of a value in the tests of Merge: v/1000 milliseconds after the Unix epoch.
func stampOf(v int) time.Time { return time.UnixMilli(int64(v / 1000)) }

func TestMergeIsInOrderOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 3))
			var want []int
			sources := make([]<-chan int, r.IntN(130))
			for i := range sources {
				source := make(chan int)
				sources[i] = source
				values := make([]int, r.IntN(40))
				delays := make([]time.Duration, len(values))
				for k := range values {
					values[k], delays[k] = r.IntN(200)*1000+i, time.Duration(r.IntN(3))*time.Millisecond
				}
				slices.Sort(values)
				want = append(want, values...)
				go func() {
					defer close(source)
					for k, v := range values {
						time.Sleep(delays[k])
						source <- v
					}
				}()
			}
			var got []int
			Merge(t.Context(), sources, stampOf, time.Second, func(v int) { got = append(got, v) })
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %d of %d values, in order: %t", seed, len(got), len(want), slices.IsSorted(got))
			}
		}
	})
}

// TestMergeDoesNotWaitForSilentSources verifies that sources that send nothing, such as the logs of a node that does
// not answer, delay the other sources only once, by the patience. It also verifies that Merge returns when ctx has
// ended.
func TestMergeDoesNotWaitForSilentSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		talks := make(chan int, 3)
		talks <- 1000
		talks <- 2000
		talks <- 3000
		close(talks)
		var got []int
		Merge(t.Context(), []<-chan int{make(chan int), talks, make(chan int)}, stampOf, 3*time.Second, func(v int) { got = append(got, v) })
		if !slices.Equal(got, []int{1000, 2000, 3000}) || time.Since(begin) != 3*time.Second {
			t.Errorf("%d after %s", got, time.Since(begin))
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		Merge(ctx, []<-chan int{make(chan int)}, stampOf, time.Hour, func(int) {})
	})
}

// TestMergeWaitsWhileSourcesBegin verifies that a busy machine, on which many logs begin one after the other, does not
// change the order of their lines, even if one log is silent.
func TestMergeWaitsWhileSourcesBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := []<-chan int{make(chan int)}
		var want []int
		for i := range 20 {
			source := make(chan int)
			sources = append(sources, source)
			want = append(want, (20-i)*1000)
			go func() {
				time.Sleep(time.Duration(i) * 2 * time.Second)
				source <- (20 - i) * 1000
				close(source)
			}()
		}
		begin := time.Now()
		var got []int
		Merge(t.Context(), sources, stampOf, 3*time.Second, func(v int) { got = append(got, v) })
		slices.Sort(want)
		if !slices.Equal(got, want) || time.Since(begin) != 19*2*time.Second+3*time.Second {
			t.Errorf("%d after %s", got, time.Since(begin))
		}
	})
}
