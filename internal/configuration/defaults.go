package configuration

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
)

// The defaults must equal the markers +default of the types. TestDefaultsAreThoseOfTheMarkers checks this.

func setOperatorDefaults(c *configv1alpha1.OperatorConfiguration) {
	c.TypeMeta = metav1.TypeMeta{APIVersion: configv1alpha1.GroupVersion, Kind: configv1alpha1.OperatorConfigurationKind}
	set(&c.LeaderElection.Enabled, true)
	text(&c.Health.BindAddress, ":8081")
	text(&c.Metrics.BindAddress, ":8443")
	text(&c.Webhook.BindAddress, ":9443")
	set(&c.Jobs.MaxReplicas, 10000)
	set(&c.Jobs.MaxListedReplicas, 1000)
	duration(&c.Jobs.ForceDeleteAfter, 5*time.Minute)
	duration(&c.Jobs.RestartBackoff, 10*time.Second)
	duration(&c.Jobs.MaxRestartBackoff, 5*time.Minute)
	duration(&c.Jobs.LogReadTime, 0)
	duration(&c.TensorBoards.IdleAfter, time.Hour)
	duration(&c.TensorBoards.SuspendAfter, 24*time.Hour)
	set(&c.TensorBoards.User, 65532)
	if len(c.TensorBoards.HelperCommand) == 0 {
		c.TensorBoards.HelperCommand = []string{"/t9k-operator"}
	}
	setTracingDefaults(c.Tracing)
}

func setTracingDefaults(t *configv1alpha1.Tracing) {
	if t != nil {
		set(&t.SamplingRatePerMillion, 1000000)
	}
}

func setGangDefaults(a *configv1alpha1.T9kGangArgs) {
	a.TypeMeta = metav1.TypeMeta{APIVersion: configv1alpha1.GroupVersion, Kind: configv1alpha1.T9kGangArgsKind}
	duration(&a.ReserveAfter, 10*time.Minute)
	duration(&a.GangGracePeriod, 5*time.Minute)
	setTracingDefaults(a.Tracing)
}

func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func text(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func duration(field **metav1.Duration, value time.Duration) {
	set(field, metav1.Duration{Duration: value})
}
