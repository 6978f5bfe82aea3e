package schedulercmd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"sigs.k8s.io/yaml"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/plugin"
)

const fileHeader = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// loaded returns the options after loadConfiguration has read a file with the given text. Without a text there is no
// file.
func loaded(t *testing.T, text string, flags ...string) (*options.Options, error) {
	t.Helper()
	opts := options.NewOptions()
	for _, set := range opts.Flags.FlagSets {
		for _, flag := range flags {
			name, value, _ := strings.Cut(flag, "=")
			if set.Lookup(name) != nil {
				if err := set.Set(name, value); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if text != "" {
		opts.ConfigFile = filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(opts.ConfigFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return opts, loadConfiguration(t.Context(), opts)
}

func profileNames(c *config.KubeSchedulerConfiguration) []string {
	var names []string
	for _, p := range c.Profiles {
		names = append(names, p.SchedulerName)
	}
	return names
}

func TestWithoutFileBothProfilesRun(t *testing.T) {
	opts, err := loaded(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := profileNames(opts.ComponentConfig); !slices.Equal(got, []string{"default-scheduler", scheduling.SchedulerName}) {
		t.Fatalf("the profiles are %q", got)
	}
	if enablesPlugin(opts.ComponentConfig.Profiles[0].Plugins) || !enablesPlugin(opts.ComponentConfig.Profiles[1].Plugins) {
		t.Error("the plugin is not in the profile t9k-scheduler alone")
	}
}

func TestProfileOfFileGetsThePlugin(t *testing.T) {
	opts, err := loaded(t, fileHeader+`
clientConnection: {qps: 7, kubeconfig: from-file}
leaderElection: {resourceName: mine}
profiles:
- schedulerName: t9k-scheduler
  pluginConfig:
  - name: T9kGang
    args: {apiVersion: config.tensorstack.dev/v1alpha1, kind: T9kGangArgs, reserveAfter: 5s, topologyLabel: zone}
`, "kubeconfig=from-flag", "leader-elect-lease-duration=33s")
	if err != nil {
		t.Fatal(err)
	}
	c := opts.ComponentConfig
	if got := profileNames(c); !slices.Equal(got, []string{scheduling.SchedulerName}) {
		t.Fatalf("the profiles are %q", got)
	}
	p := c.Profiles[0]
	if !enablesPlugin(p.Plugins) || p.Plugins.PostFilter.Disabled[0].Name != "*" || p.Plugins.Bind.Disabled[0].Name != defaultbinder.Name {
		t.Errorf("the plugins are %+v", p.Plugins)
	}
	i := slices.IndexFunc(p.PluginConfig, func(c config.PluginConfig) bool { return c.Name == plugin.Name })
	settings, err := plugin.Settings(p.PluginConfig[i].Args)
	if err != nil || settings.ReserveAfter.Duration != 5*time.Second || settings.GangGracePeriod.Duration != 5*time.Minute || settings.TopologyLabel != "zone" || settings.Tracing != nil {
		t.Errorf("the settings are %+v, error %v", settings, err)
	}
	opts.ApplyDeprecated() // as opts.Config does
	opts.ApplyLeaderElectionTo(opts.ComponentConfig)
	if c.ClientConnection.Kubeconfig != "from-flag" || c.ClientConnection.QPS != 7 {
		t.Errorf("the connection is %+v", c.ClientConnection)
	}
	if l := c.LeaderElection; l.ResourceName != "mine" || l.LeaseDuration.Duration != 33*time.Second {
		t.Errorf("the leader election is %+v", l)
	}
}

// TestInstalledFileIsValid verifies that the scheduler accepts the file of config/scheduler when it starts, and that
// the plugin is enabled in its only profile.
func TestInstalledFileIsValid(t *testing.T) {
	data, err := os.ReadFile("../../../config/scheduler/config_map.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(data, installed); err != nil {
		t.Fatal(err)
	}
	opts, err := loaded(t, installed.Data["config.yaml"])
	if err != nil {
		t.Fatal(err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(opts.ComponentConfig); err != nil {
		t.Error(err)
	}
	p := opts.ComponentConfig.Profiles
	if len(p) != 1 || !enablesPlugin(p[0].Plugins) {
		t.Fatalf("the profiles are %+v", p)
	}
	i := slices.IndexFunc(p[0].PluginConfig, func(c config.PluginConfig) bool { return c.Name == plugin.Name })
	if settings, err := plugin.Settings(p[0].PluginConfig[i].Args); err != nil || settings.ReserveAfter.Duration != 10*time.Minute {
		t.Errorf("the settings are %+v, error %v", settings, err)
	}
}

func TestErrorsInTheFileAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		fileHeader + "profile: []\n":                    `unknown field "profile"`,
		fileHeader + "parallelism: 1\nparallelism: 2\n": `"parallelism" already set`,
	} {
		if _, err := loaded(t, text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "config.yaml is invalid") {
			t.Errorf("%q: the error lacks %q: %v", text, want, err)
		}
	}
	args := &runtime.Unknown{Raw: []byte(`{"apiVersion": "config.tensorstack.dev/v1alpha1", "kind": "T9kGangArgs", "grace": "1s"}`)}
	if _, err := plugin.Settings(args); err == nil || !strings.Contains(err.Error(), `unknown field "profiles[t9k-scheduler].pluginConfig[T9kGang].args.grace"`) {
		t.Errorf("the error is %v", err)
	}
}
