package kit

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

// Exit codes other than 0.
const (
	// ExitFailed is the exit code for every error, and for jobs that have failed.
	ExitFailed = 1
	// ExitInterrupted is the exit code that shells expect of a program that Ctrl-C has stopped.
	ExitInterrupted = 130
)

// ExitError makes the program exit with Code. Err is nil if everything has already been reported.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err or, if Err is nil, the exit code as text.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Explain returns the text of an error, with advice if there is any.
func Explain(err error) string {
	text := strings.TrimSpace(err.Error())
	var refused *net.OpError
	var request *url.Error
	switch {
	case errors.Is(err, ErrNoCluster), clientcmd.IsEmptyConfig(err):
		return ErrNoCluster.Error() + ".\nStart one on this machine with \"t9k local up\", or name a kubeconfig with --kubeconfig or KUBECONFIG."
	case errors.Is(err, ErrNotInstalled):
		return text + ".\nInstall them, and the operator, from a checkout of this project: kubectl apply --server-side -k config/default"
	case errors.As(err, &request) && errors.As(err, &refused) && refused.Op == "dial":
		return fmt.Sprintf("the cluster does not answer: %v.\nIs it running? \"t9k local up\" starts the embedded cluster.", refused)
	case apierrors.IsUnauthorized(err):
		return text + ".\nThe cluster does not accept the credentials of the kubeconfig."
	}
	return text
}

// Cause returns the text of a request's error without the request's address.
func Cause(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return err.Error()
}
