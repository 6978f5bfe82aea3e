package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// apiPackage is the information about a Go package of API types that the pages need.
type apiPackage struct {
	group, version string
	types          map[string]*apiType
	order          []string
}

type apiType struct {
	name      string
	doc       string
	markers   []string
	expr      ast.Expr
	fields    []field    // of a struct
	constants []constant // of a named string
}

type field struct {
	name    string // in JSON; empty for an inlined struct
	goType  ast.Expr
	doc     string
	markers []string
}

type constant struct{ value, doc string }

func parsePackage(dir string) (*apiPackage, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	pkg := &apiPackage{version: filepath.Base(dir), types: map[string]*apiType{}}
	var constants []*ast.ValueSpec
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.Base(path), "zz_generated") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		constants = append(constants, pkg.addFile(file)...)
	}
	if pkg.group == "" {
		return nil, fmt.Errorf("%s: no package comment with +groupName", dir)
	}
	pkg.addConstants(constants)
	return pkg, nil
}

// addFile adds the types of a file and returns its constants. The caller adds the constants when all types are known,
// because their types can be declared in another file.
func (p *apiPackage) addFile(file *ast.File) []*ast.ValueSpec {
	_, markers := splitDoc(file.Doc)
	if group := marker(markers, "groupName"); group != "" {
		p.group = group
	}
	var constants []*ast.ValueSpec
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				p.addType(gen, spec)
			case *ast.ValueSpec:
				if gen.Tok == token.CONST {
					constants = append(constants, spec)
				}
			}
		}
	}
	return constants
}

func (p *apiPackage) addType(gen *ast.GenDecl, spec *ast.TypeSpec) {
	comment := spec.Doc
	if comment == nil {
		comment = gen.Doc
	}
	t := &apiType{name: spec.Name.Name, expr: spec.Type}
	t.doc, t.markers = splitDoc(comment)
	if s, ok := spec.Type.(*ast.StructType); ok {
		for _, f := range s.Fields.List {
			t.fields = append(t.fields, newField(f))
		}
	}
	p.types[t.name] = t
	p.order = append(p.order, t.name)
}

func (p *apiPackage) addConstants(specs []*ast.ValueSpec) {
	for _, spec := range specs {
		name, ok := spec.Type.(*ast.Ident)
		if !ok || p.types[name.Name] == nil {
			continue
		}
		doc, _ := splitDoc(spec.Doc)
		for i, value := range spec.Values {
			literal, ok := value.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				continue
			}
			t := p.types[name.Name]
			t.constants = append(t.constants, constant{value: text, doc: withoutName(doc, spec.Names[i].Name)})
		}
	}
}

func newField(f *ast.Field) field {
	out := field{goType: f.Type}
	out.doc, out.markers = splitDoc(f.Doc)
	if f.Tag != nil {
		tag, _ := strconv.Unquote(f.Tag.Value)
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		out.name = name
	}
	return out
}

// splitDoc splits a comment into its prose and its markers, the lines that begin with a plus sign.
func splitDoc(comment *ast.CommentGroup) (doc string, markers []string) {
	var prose []string
	for line := range strings.Lines(comment.Text()) {
		line = strings.TrimSpace(line)
		if m, ok := strings.CutPrefix(line, "+"); ok {
			markers = append(markers, m)
			continue
		}
		prose = append(prose, line)
	}
	return strings.TrimSpace(strings.Join(prose, "\n")), markers
}

// withoutName removes the Go name from the doc comment of a constant, because the page shows only the constant's value:
// "JobPaused: paused." becomes "Paused.", "CleanUpNone keeps every pod." becomes "Keeps every pod."
func withoutName(doc, name string) string {
	rest, ok := strings.CutPrefix(doc, name)
	if !ok || rest == "" {
		return doc
	}
	rest = strings.TrimSpace(strings.TrimPrefix(rest, ":"))
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// marker returns the text after `name=`, `name:=` or `name:`, "true" for the bare name, and "" if there is no such
// marker.
func marker(markers []string, name string) string {
	for _, m := range markers {
		rest, ok := strings.CutPrefix(m, name)
		switch {
		case !ok:
		case rest == "":
			return "true"
		case strings.HasPrefix(rest, "="):
			return rest[1:]
		case strings.HasPrefix(rest, ":="), strings.HasPrefix(rest, ":"):
			return strings.TrimPrefix(rest[1:], "=")
		}
	}
	return ""
}

// kinds returns the types that are root objects of the API and not lists.
func (p *apiPackage) kinds() []*apiType {
	var kinds []*apiType
	for _, name := range p.order {
		t := p.types[name]
		if marker(t.markers, "kubebuilder:object:root") == "true" && !strings.HasSuffix(name, "List") {
			kinds = append(kinds, t)
		}
	}
	return kinds
}
