package forward

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// TestIdleAddressesEnd verifies that an address is closed an hour after its last request, but not during a request.
func TestIdleAddressesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoards(&Client{})
		f := &Forward{tunnel: &tunnel{}, web: &http.Server{ReadHeaderTimeout: time.Second}, last: time.Now()}
		b.open["board"] = f
		b.running.Go(func() { b.keep("board", f) })
		is := func(when string, open bool) {
			t.Helper()
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			if (b.open["board"] != nil) != open {
				t.Errorf("%s: open is %v", when, !open)
			}
		}
		f.count(1)
		time.Sleep(3 * time.Hour)
		is("during a request of three hours", true)
		f.count(-1)
		time.Sleep(59 * time.Minute)
		is("59 minutes after it", true)
		f.count(1)
		f.count(-1)
		time.Sleep(59 * time.Minute)
		is("59 minutes after another one", true)
		time.Sleep(2 * time.Minute)
		is("61 minutes after it", false)
		b.Close()
	})
}

// TestClosedBoardsOpenNothing verifies that Open does not return an address that Close has closed.
func TestClosedBoardsOpenNothing(t *testing.T) {
	b := NewBoards(&Client{})
	f := &Forward{tunnel: &tunnel{}, web: &http.Server{ReadHeaderTimeout: time.Second}, last: time.Now()}
	b.open["board"] = f
	b.running.Go(func() { b.keep("board", f) })
	b.Close()
	if url, err := b.at(t.Context(), &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{UID: "board"}}); err == nil {
		t.Errorf("it returns %q", url)
	}
}
