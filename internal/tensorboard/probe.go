package tensorboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/tensorboard/board"
)

// probeTimeout is the timeout of one probe of a pod.
const probeTimeout = 3 * time.Second

// probeClient returns an HTTP client that does not follow redirects, so that a pod cannot make the operator call
// another address.
func probeClient() *http.Client {
	return &http.Client{
		Timeout:       probeTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// fetchActivity returns the Activity that a pod reports.
func (r *reconciler) fetchActivity(ctx context.Context, pod *corev1.Pod) (*board.Activity, error) {
	if pod.Status.PodIP == "" {
		return nil, errors.New("it has no address")
	}
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(board.ActivityPort))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return nil, fmt.Errorf("asking pod %s: %w", pod.Name, err)
	}
	answer, err := r.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking pod %s: %w", pod.Name, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking pod %s: it answers %s", pod.Name, answer.Status)
	}
	a := &board.Activity{}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 4096)).Decode(a); err != nil {
		return nil, fmt.Errorf("asking pod %s: %w", pod.Name, err)
	}
	return a, nil
}
