// Package configuration reads the configuration files of the programs, whose types are in
// config.tensorstack.dev/v1alpha1. It decodes them strictly, sets defaults and validates them. It does not depend on
// any program. Start reading at Operator.
package configuration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
)

// FromFile reads settings from a file with the function read. If the path is empty, it passes no text to read, which
// then returns the defaults. A file that is empty or blank is an error, because its settings were probably lost.
func FromFile[T any](path string, read func(text []byte) (*T, error)) (*T, error) {
	if path == "" {
		return read(nil)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("the configuration file %s is empty", path)
	}
	settings, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("the configuration file %s is invalid: %w", path, err)
	}
	return settings, nil
}

// Operator reads the operator's settings from YAML or JSON. A field that the text does not set gets its default, so an
// empty text yields the defaults.
func Operator(text []byte) (*configv1alpha1.OperatorConfiguration, error) {
	c := &configv1alpha1.OperatorConfiguration{}
	if len(text) > 0 {
		if err := decode(text, c, configv1alpha1.OperatorConfigurationKind, nil); err != nil {
			return nil, err
		}
	}
	setOperatorDefaults(c)
	return c, validateOperator(c).ToAggregate()
}

// GangArgs reads the arguments of the scheduler's plugin from YAML or JSON. A field that the text does not set gets its
// default, so an empty text yields the defaults. In errors about unknown fields and invalid values, the names of fields
// begin with path, the path of the arguments in their file.
func GangArgs(text []byte, path *field.Path) (*configv1alpha1.T9kGangArgs, error) {
	a := &configv1alpha1.T9kGangArgs{}
	if len(text) > 0 {
		if err := decode(text, a, configv1alpha1.T9kGangArgsKind, path); err != nil {
			return nil, err
		}
	}
	setGangDefaults(a)
	return a, validateGang(a, path).ToAggregate()
}

// decode reads text into an object of a kind. Another kind, another apiVersion, and unknown or repeated fields are
// errors. In errors about the kind, the apiVersion and unknown fields, the names of fields begin with path, which may
// be nil.
func decode(text []byte, into any, kind string, path *field.Path) error {
	data, err := yaml.YAMLToJSONStrict(text) // detects duplicate fields
	if err != nil {
		return fmt.Errorf("reading YAML: %w", err)
	}
	if err := checkKind(data, kind, path); err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(data, into)
	if err != nil {
		return fmt.Errorf("reading a %s: %w", kind, err)
	}
	for i, err := range strict {
		var inField json.FieldError
		if path != nil && errors.As(err, &inField) {
			inField.SetFieldPath(path.String() + "." + inField.FieldPath())
		}
		strict[i] = err
	}
	if len(strict) > 0 {
		return fmt.Errorf("%w: docs/reference/%s.md lists the fields", errors.Join(strict...), strings.ToLower(kind))
	}
	return nil
}

// checkKind verifies the apiVersion and the kind. decode calls it first, because otherwise every field of another kind
// would be reported as unknown.
func checkKind(data []byte, kind string, path *field.Path) error {
	found := metav1.TypeMeta{}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &found); err != nil {
		return fmt.Errorf("reading a %s: %w", kind, err)
	}
	var all field.ErrorList
	if found.APIVersion != configv1alpha1.GroupVersion {
		all = append(all, field.NotSupported(child(path, "apiVersion"), found.APIVersion, []string{configv1alpha1.GroupVersion}))
	}
	if found.Kind != kind {
		all = append(all, field.NotSupported(child(path, "kind"), found.Kind, []string{kind}))
	}
	return all.ToAggregate()
}

func child(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(name)
	}
	return path.Child(name)
}
