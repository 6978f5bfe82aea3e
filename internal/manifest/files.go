package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Opener opens a file and returns its name for messages.
type Opener func(file string) (r io.ReadCloser, name string, err error)

// ErrNoFile means that no manifest was named.
var ErrNoFile = errors.New("name a manifest: -f FILE")

// Checked is the result of checking the objects in some files. Errors contains the errors of Results and those of
// documents that cannot be parsed, in the order of the files and, within a file, of the lines.
type Checked struct {
	Results []Result
	Errors  []Diagnostic
}

// Expand replaces each directory in a list of manifests with the manifests in it, sorted by name: the files that end
// with .yaml, .yml or .json. It does not look into subdirectories. A directory without such files is an error.
func Expand(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() {
			files = append(files, name) // the Opener reports the error, and accepts names that are not files
			continue
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, fmt.Errorf("reading the directory of manifests: %w", err)
		}
		before := len(files)
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
				files = append(files, filepath.Join(name, e.Name()))
			}
		}
		if len(files) == before {
			return nil, fmt.Errorf("directory %s holds no manifest: its name would end with .yaml, .yml or .json", name)
		}
	}
	return files, nil
}

// ReadFile reads the objects in a file. name is the name of the file for messages. diags are the errors of documents
// that cannot be parsed.
func ReadFile(open Opener, file string) (name string, docs []Doc, diags []Diagnostic, err error) {
	r, name, err := open(file)
	if err != nil {
		return "", nil, nil, err
	}
	docs, diags, err = Read(name, r)
	return name, docs, diags, errors.Join(err, r.Close())
}

// CheckFiles reads and checks files and directories. It returns ErrNoFile if there are none, and an error if a file
// cannot be read or has no object.
func (c *Checker) CheckFiles(ctx context.Context, open Opener, files []string) (*Checked, error) {
	if len(files) == 0 {
		return nil, ErrNoFile
	}
	files, err := Expand(files)
	if err != nil {
		return nil, err
	}
	all := &Checked{}
	for _, file := range files {
		name, docs, diags, err := ReadFile(open, file)
		if err != nil {
			return nil, err
		}
		if len(docs)+len(diags) == 0 {
			return nil, fmt.Errorf("%s holds no object", name)
		}
		one, err := c.CheckDocs(ctx, docs, diags)
		if err != nil {
			return nil, err
		}
		all.Results = append(all.Results, one.Results...)
		all.Errors = append(all.Errors, one.Errors...)
	}
	return all, nil
}

// CheckDocs checks the documents of one file. diags are the errors that were found when the file was read. The result
// contains them too, and its errors are sorted by line.
func (c *Checker) CheckDocs(ctx context.Context, docs []Doc, diags []Diagnostic) (*Checked, error) {
	all := &Checked{Errors: diags}
	for _, d := range docs {
		result, err := c.Check(ctx, d)
		if err != nil {
			return nil, err
		}
		all.Results = append(all.Results, result)
		all.Errors = append(all.Errors, result.Errors...)
	}
	Sort(all.Errors)
	return all, nil
}

// NameOf returns a reference to an object of any kind as KIND/NAME, for example configmap/data.
func NameOf(u *unstructured.Unstructured) string {
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName()
	}
	return strings.ToLower(u.GetKind()) + "/" + name
}
