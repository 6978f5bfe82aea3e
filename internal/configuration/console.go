package configuration

import (
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
)

// Console reads the console's settings from YAML or JSON. A field that the text does not set gets its default, so an
// empty text yields the defaults.
func Console(text []byte) (*configv1alpha1.ConsoleConfiguration, error) {
	c := &configv1alpha1.ConsoleConfiguration{}
	if len(text) > 0 {
		if err := decode(text, c, configv1alpha1.ConsoleConfigurationKind, nil); err != nil {
			return nil, err
		}
	}
	setConsoleDefaults(c)
	return c, validateConsole(c).ToAggregate()
}

func setConsoleDefaults(c *configv1alpha1.ConsoleConfiguration) {
	c.TypeMeta = metav1.TypeMeta{APIVersion: configv1alpha1.GroupVersion, Kind: configv1alpha1.ConsoleConfigurationKind}
	text(&c.Server.BindAddress, ":8080")
	text(&c.Health.BindAddress, ":8081")
	text(&c.Metrics.BindAddress, ":8443")
	duration(&c.AccessCacheTime, 10*time.Second)
	set(&c.Archive.MaxJobLogSize, resource.MustParse("4Mi"))
	set(&c.Archive.MaxLogSize, resource.MustParse("1Gi"))
}

// validateConsole returns the errors in settings whose defaults have been set.
func validateConsole(c *configv1alpha1.ConsoleConfiguration) field.ErrorList {
	var all field.ErrorList
	add := func(err *field.Error) {
		if err != nil {
			all = append(all, err)
		}
	}
	server := field.NewPath("server")
	if c.Server.BindAddress == Off {
		add(field.Invalid(server.Child("bindAddress"), c.Server.BindAddress, "must be HOST:PORT or :PORT"))
	}
	add(checkAddress(server.Child("bindAddress"), c.Server.BindAddress))
	for i, address := range c.Server.URLs {
		if !isOrigin(address) {
			add(field.Invalid(server.Child("urls").Index(i), address, "must be an address such as https://console.example.org, without a path"))
		}
	}
	add(checkAddress(field.NewPath("health", "bindAddress"), c.Health.BindAddress))
	add(checkAddress(field.NewPath("metrics", "bindAddress"), c.Metrics.BindAddress))
	add(positive(field.NewPath("accessCacheTime"), c.AccessCacheTime))
	archive := field.NewPath("archive")
	add(positiveSize(archive.Child("maxJobLogSize"), c.Archive.MaxJobLogSize))
	add(positiveSize(archive.Child("maxLogSize"), c.Archive.MaxLogSize))
	return append(all, validateSignIn(c)...)
}

// validateSignIn returns the errors in the sign-in settings, which may be unset. If they are set, server.urls must be
// set too.
func validateSignIn(c *configv1alpha1.ConsoleConfiguration) field.ErrorList {
	if c.SignIn == nil {
		return nil
	}
	var all field.ErrorList
	path := field.NewPath("signIn")
	if u, err := url.Parse(c.SignIn.Issuer); err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		all = append(all, field.Invalid(path.Child("issuer"), c.SignIn.Issuer, "must be an address such as https://login.example.org"))
	}
	if c.SignIn.ClientID == "" {
		all = append(all, field.Required(path.Child("clientID"), "set the ID of the console at the provider"))
	}
	if c.SignIn.ClientSecretFile == "" {
		all = append(all, field.Required(path.Child("clientSecretFile"), "name the file with the secret of the console at the provider"))
	}
	if len(c.Server.URLs) == 0 {
		all = append(all, field.Required(field.NewPath("server", "urls"), "set the addresses of the console, or remove signIn: the provider leads users back to them"))
	}
	return all
}

// isOrigin reports whether an address consists of the scheme http or https and a host, perhaps with a port. It may end
// in a slash.
func isOrigin(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	origin := url.URL{Scheme: u.Scheme, Host: u.Host}
	return (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(strings.TrimSuffix(address, "/"), origin.String())
}

func positiveSize(path *field.Path, size *resource.Quantity) *field.Error {
	if size.Sign() <= 0 {
		return field.Invalid(path, size.String(), "must be more than 0")
	}
	return nil
}
