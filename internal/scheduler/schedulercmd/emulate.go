package schedulercmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
)

// oldest is the oldest version of Kubernetes that kube-scheduler 1.36 emulates.
var oldest = version.MajorMinor(1, 33)

// emulate sets --emulated-version to the version of the API server if that is older than this program, unless the user
// has set the flag. A scheduler must not be newer than its API server: it would wait forever for kinds that the API
// server does not serve. emulate waits until the API server answers, and returns an error if the server is older than
// oldest.
func emulate(ctx context.Context, opts *options.Options, f *pflag.FlagSet) error {
	if f.Changed("emulated-version") {
		return nil
	}
	config, err := clientConfig(ctx, opts, f)
	if err != nil {
		return fmt.Errorf("loading the client configuration: %w", err)
	}
	server, err := serverVersion(ctx, config)
	if err != nil {
		return err
	}
	if server.LessThan(oldest) {
		return fmt.Errorf("the API server is Kubernetes %s; t9k-scheduler works with %s and later", server, oldest)
	}
	own := opts.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	if !server.LessThan(version.MajorMinor(own.Major(), own.Minor())) {
		return nil
	}
	klog.FromContext(ctx).Info("Emulating the version of the API server", "version", server, "ownVersion", own)
	return f.Set("emulated-version", server.String())
}

// clientConfig returns the configuration of the API server's client from the same flags and file as loadConfiguration.
func clientConfig(ctx context.Context, opts *options.Options, f *pflag.FlagSet) (*rest.Config, error) {
	kubeconfig := f.Lookup("kubeconfig").Value.String()
	if kubeconfig == "" && opts.ConfigFile != "" {
		config, err := options.LoadConfigFromFile(klog.FromContext(ctx), opts.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("the configuration file %s is invalid: %w", opts.ConfigFile, err)
		}
		kubeconfig = config.ClientConnection.Kubeconfig
	}
	return clientcmd.BuildConfigFromFlags(opts.Master, kubeconfig)
}

// serverVersion returns the Kubernetes version that the API server emulates, or else its own. It waits until the API
// server answers.
func serverVersion(ctx context.Context, config *rest.Config) (*version.Version, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	var answer *apiversion.Info
	var last error
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		if answer, err = client.ServerVersion(); err != nil && last == nil {
			klog.FromContext(ctx).Error(err, "Cannot get the version of the API server; trying again")
		}
		last = err
		return err == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", last)
	}
	return versionOf(answer)
}

// versionOf returns the version that an API server emulates, or else its own. Some providers add a sign to the minor
// version, such as "33+".
func versionOf(i *apiversion.Info) (*version.Version, error) {
	major, minor := i.Major, i.Minor
	if i.EmulationMajor != "" {
		major, minor = i.EmulationMajor, i.EmulationMinor
	}
	v, err := version.ParseMajorMinor(major + "." + strings.TrimRight(minor, "+"))
	if err != nil {
		return nil, fmt.Errorf("the API server has the version %q: %w", i.GitVersion, err)
	}
	return v, nil
}

// costlyFeature is a feature that costs a write for each pod that waits at Permit.
const costlyFeature = string(features.NominatedNodeNameForExpectation)

// turnsOffCostlyFeature reports whether to turn costlyFeature off, given the values of --feature-gates and
// --emulated-version. It returns false if the user sets the feature or the emulated version does not have it.
func turnsOffCostlyFeature(gates, emulated string) bool {
	return !strings.Contains(gates, costlyFeature) && !strings.Contains(emulated, oldest.String())
}
