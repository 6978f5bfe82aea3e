package local

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	schedulerv1beta1 "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// OperatorSettings returns the content of a configuration file of the operator. Each text is a YAML object with fields
// of the file, without apiVersion and kind. If several texts set a field, objects are merged, and any other value of a
// later text replaces the earlier one. OperatorSettings fails if a text is not valid YAML or not an object.
func OperatorSettings(texts ...string) ([]byte, error) {
	return settings(configv1alpha1.OperatorConfigurationKind, texts)
}

// ConsoleSettings returns the content of a configuration file of the console, from texts as in OperatorSettings.
func ConsoleSettings(texts ...string) ([]byte, error) {
	return settings(configv1alpha1.ConsoleConfigurationKind, texts)
}

func settings(kind string, texts []string) ([]byte, error) {
	c, err := merge(map[string]any{"apiVersion": configv1alpha1.GroupVersion, "kind": kind}, texts)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(c)
}

// SchedulerSettings returns the content of a configuration file of the t9k-scheduler, with a profile for each of the
// schedulers. The texts, as in OperatorSettings, contain arguments of the plugin T9kGang, which only the profile of the
// t9k-scheduler configures.
func SchedulerSettings(schedulers []string, texts ...string) ([]byte, error) {
	args, err := merge(map[string]any{"apiVersion": configv1alpha1.GroupVersion, "kind": configv1alpha1.T9kGangArgsKind}, texts)
	if err != nil {
		return nil, err
	}
	var profiles []any
	for _, name := range schedulers {
		profile := map[string]any{"schedulerName": name}
		if name == schedulerv1beta1.SchedulerName {
			profile["pluginConfig"] = []any{map[string]any{"name": "T9kGang", "args": args}}
		}
		profiles = append(profiles, profile)
	}
	return yaml.Marshal(map[string]any{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles})
}

// merge merges the YAML texts into the object into and returns this object.
func merge(into map[string]any, texts []string) (map[string]any, error) {
	for _, text := range texts {
		fields := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(text), &fields); err != nil {
			return nil, fmt.Errorf("reading the settings %q: %w", text, err)
		}
		mergeFields(into, fields)
	}
	return into, nil
}

func mergeFields(into, fields map[string]any) {
	for name, value := range fields {
		old, isObject := into[name].(map[string]any)
		if more, ok := value.(map[string]any); ok && isObject {
			mergeFields(old, more)
			continue
		}
		into[name] = value
	}
}

// logReadTime is how long a pod of a replica remains after the operator has seen the end of the pod, so that the
// console can archive its log before a restart or a clean-up deletes the pod. It equals the chart's default;
// docs/designs/0022-logs-before-deletion.md gives the reasons.
const logReadTime = "2s"

// operatorBase returns the operator's settings on the cluster, as texts of OperatorSettings.
func operatorBase(c *Config) ([]string, error) {
	webhook := "0"
	if c.has(Webhook) {
		webhook = c.loopback(Webhook)
	}
	stays := "0s" // without a console, nobody archives the logs
	if c.has(Console) {
		stays = logReadTime
	}
	base := []string{fmt.Sprintf(`{leaderElection: {enabled: false}, health: {bindAddress: "%s"}, metrics: {bindAddress: "0"}, webhook: {bindAddress: "%s"}, jobs: {clusterDomain: %s, logReadTime: %s}}`,
		c.loopback(Operator), webhook, clusterDomain, stays)}
	if c.Runtime != RuntimeProcess {
		return base, nil
	}
	// Containers are processes without images, so the TensorBoards' helpers run this program's operator. TensorBoards
	// run as root (user 0), because only the user who runs the cluster may be able to read their programs.
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return append(base, fmt.Sprintf(`{tensorBoards: {helperCommand: [%q, operator], user: 0}}`, binary)), nil
}

// writeSettings writes the configuration files of the operator, the scheduler and the console.
func writeSettings(d Dir, c *Config) error {
	base, err := operatorBase(c)
	if err != nil {
		return err
	}
	operator, err := OperatorSettings(append(base, c.Settings[Operator]...)...)
	if err != nil {
		return err
	}
	if err := writeFile(d.settingsFile(Operator), operator, 0o600); err != nil {
		return fmt.Errorf("writing the operator's configuration: %w", err)
	}
	scheduler, err := SchedulerSettings([]string{"default-scheduler", schedulerv1beta1.SchedulerName}, c.Settings[Scheduler]...)
	if err != nil {
		return err
	}
	if err := writeFile(d.settingsFile(Scheduler), scheduler, 0o600); err != nil {
		return fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	console, err := ConsoleSettings(consoleBase(d, c))
	if err != nil {
		return err
	}
	if err := writeFile(d.settingsFile(Console), console, 0o600); err != nil {
		return fmt.Errorf("writing the console's configuration: %w", err)
	}
	return nil
}
