package kindtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/kinds"
)

// Manifest is a manifest file of a test.
type Manifest struct {
	// Name is the file's name without its directory and extension.
	Name string
	// Data is the file's content.
	Data []byte
}

// Manifests reads the YAML files of a directory in the order of their names. It fails the test if there are none.
func Manifests(t testing.TB, files fs.FS, dir string) []Manifest {
	t.Helper()
	entries, err := fs.Glob(files, dir+"/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Fatalf("%s holds no manifests", dir)
	}
	manifests := make([]Manifest, len(entries))
	for i, entry := range entries {
		data, err := fs.ReadFile(files, entry)
		if err != nil {
			t.Fatal(err)
		}
		manifests[i] = Manifest{Name: strings.TrimSuffix(path.Base(entry), ".yaml"), Data: data}
	}
	return manifests
}

// Decode decodes the jobs in a file of YAML documents. Unknown fields and other kinds of objects are errors.
func Decode(data []byte) ([]kinds.Object, error) {
	var objects []kinds.Object
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("reading the kind: %w", err)
		}
		k, err := kinds.ByName(kind.Kind)
		if err != nil {
			return nil, err
		}
		o := k.New()
		if err := yaml.UnmarshalStrict(document, o); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}
