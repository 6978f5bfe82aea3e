package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

// explain adds the way out to errors that have a common one.
func explain(err error) string {
	text := strings.TrimSpace(err.Error())
	var refused *net.OpError
	var request *url.Error
	switch {
	case errors.Is(err, errNoCluster), clientcmd.IsEmptyConfig(err):
		return errNoCluster.Error() + ".\nStart one on this machine with \"t9k local up\", or name a kubeconfig with --kubeconfig or KUBECONFIG."
	case errors.Is(err, errNotInstalled):
		return text + ".\nInstall them, and the operator, from a checkout of this project: kubectl apply --server-side -k config/default"
	case errors.As(err, &request) && errors.As(err, &refused) && refused.Op == "dial":
		return fmt.Sprintf("the cluster does not answer: %v.\nIs it up? The embedded one is started by \"t9k local up\".", refused)
	case apierrors.IsUnauthorized(err):
		return text + ".\nThe cluster does not accept the credentials of the kubeconfig."
	}
	return text
}

// cause is the part of an error of a request that tells people something: without the request's address.
func cause(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return err.Error()
}
