package configuration

import (
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
)

// Off is the bind address that disables a server.
const Off = "0"

// Serves reports whether a server with this bind address is enabled: the address is neither empty nor Off.
func Serves(address string) bool { return address != "" && address != Off }

// validateOperator returns the errors in settings whose defaults have been set.
func validateOperator(c *configv1alpha1.OperatorConfiguration) field.ErrorList {
	var all field.ErrorList
	add := func(err *field.Error) {
		if err != nil {
			all = append(all, err)
		}
	}
	add(checkAddress(field.NewPath("health", "bindAddress"), c.Health.BindAddress))
	add(checkAddress(field.NewPath("metrics", "bindAddress"), c.Metrics.BindAddress))
	add(checkAddress(field.NewPath("webhook", "bindAddress"), c.Webhook.BindAddress))
	if c.Webhook.CertDir != "" && !Serves(c.Webhook.BindAddress) {
		add(field.Invalid(field.NewPath("webhook", "certDir"), c.Webhook.CertDir, "no webhook is served: remove it, or set webhook.bindAddress"))
	}
	jobs := field.NewPath("jobs")
	if c.Jobs.ClusterDomain != "" {
		for _, problem := range validation.IsDNS1123Subdomain(c.Jobs.ClusterDomain) {
			add(field.Invalid(jobs.Child("clusterDomain"), c.Jobs.ClusterDomain, problem))
		}
	}
	add(atLeast(jobs.Child("maxReplicas"), int64(*c.Jobs.MaxReplicas), 1))
	add(atLeast(jobs.Child("maxListedReplicas"), int64(*c.Jobs.MaxListedReplicas), 1))
	add(positive(jobs.Child("forceDeleteAfter"), c.Jobs.ForceDeleteAfter))
	add(positive(jobs.Child("restartBackoff"), c.Jobs.RestartBackoff))
	add(positive(jobs.Child("maxRestartBackoff"), c.Jobs.MaxRestartBackoff))
	if c.Jobs.MaxRestartBackoff.Duration < c.Jobs.RestartBackoff.Duration {
		add(field.Invalid(jobs.Child("maxRestartBackoff"), c.Jobs.MaxRestartBackoff.Duration.String(), "must be at least jobs.restartBackoff, "+c.Jobs.RestartBackoff.Duration.String()))
	}
	add(notNegative(jobs.Child("logReadTime"), c.Jobs.LogReadTime))
	boards := field.NewPath("tensorBoards")
	add(notNegative(boards.Child("idleAfter"), c.TensorBoards.IdleAfter))
	add(notNegative(boards.Child("suspendAfter"), c.TensorBoards.SuspendAfter))
	add(atLeast(boards.Child("user"), *c.TensorBoards.User, 0))
	return append(all, validateTracing(c.Tracing, field.NewPath("tracing"))...)
}

// validateGang returns the errors in arguments whose defaults have been set.
func validateGang(a *configv1alpha1.T9kGangArgs, path *field.Path) field.ErrorList {
	var all field.ErrorList
	add := func(err *field.Error) {
		if err != nil {
			all = append(all, err)
		}
	}
	add(notNegative(child(path, "reserveAfter"), a.ReserveAfter))
	add(positive(child(path, "gangGracePeriod"), a.GangGracePeriod))
	if a.TopologyLabel != "" {
		for _, problem := range validation.IsQualifiedName(a.TopologyLabel) {
			add(field.Invalid(child(path, "topologyLabel"), a.TopologyLabel, problem))
		}
	}
	return append(all, validateTracing(a.Tracing, child(path, "tracing"))...)
}

// validateTracing returns the errors in tracing settings; nil settings are valid.
func validateTracing(t *configv1alpha1.Tracing, path *field.Path) field.ErrorList {
	if t == nil {
		return nil
	}
	var all field.ErrorList
	if t.Endpoint == "" {
		all = append(all, field.Required(path.Child("endpoint"), "name the collector as HOST:PORT, or remove "+path.String()))
	} else if !isEndpoint(t.Endpoint) {
		all = append(all, field.Invalid(path.Child("endpoint"), t.Endpoint, "must be HOST:PORT without a scheme, such as otel-collector.monitoring:4317"))
	}
	if rate := *t.SamplingRatePerMillion; rate < 0 || rate > 1000000 {
		all = append(all, field.Invalid(path.Child("samplingRatePerMillion"), rate, "must be from 0 to 1000000"))
	}
	return all
}

// isEndpoint reports whether an address is HOST:PORT, where HOST is a DNS name or an IP address and PORT is not 0.
func isEndpoint(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func checkAddress(path *field.Path, address string) *field.Error {
	if !Serves(address) {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return field.Invalid(path, address, "must be HOST:PORT, :PORT, or 0 to turn the server off")
	}
	return nil
}

func atLeast(path *field.Path, value, least int64) *field.Error {
	if value < least {
		return field.Invalid(path, value, "must be at least "+strconv.FormatInt(least, 10))
	}
	return nil
}

func positive(path *field.Path, d *metav1.Duration) *field.Error {
	if d.Duration < time.Nanosecond {
		return field.Invalid(path, d.Duration.String(), "must be more than 0s")
	}
	return nil
}

func notNegative(path *field.Path, d *metav1.Duration) *field.Error {
	if d.Duration < 0 {
		return field.Invalid(path, d.Duration.String(), "must not be negative; 0s turns it off")
	}
	return nil
}
