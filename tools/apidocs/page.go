package main

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

const header = "<!-- Generated from the Go types by `make generate`. Do not edit. -->\n"

const kubernetesReference = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#"

// page renders the reference of one kind: its fields, and then every type that it uses, in the order of first mention.
func page(p *apiPackage, kind *apiType) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n# %s\n\n", header, kind.name)
	fmt.Fprintf(&b, "`apiVersion: %s/%s`, `kind: %s`", p.group, p.version, kind.name)
	if short := shortName(kind); short != "" {
		fmt.Fprintf(&b, ", short name `%s`", short)
	}
	fmt.Fprintf(&b, "\n\n%s\n%s", kind.doc, p.body(kind))
	p.sections(&b, kind, map[string]bool{kind.name: true})
	return b.String()
}

func (p *apiPackage) sections(b *strings.Builder, t *apiType, seen map[string]bool) {
	for _, name := range p.mentions(t) {
		if seen[name] {
			continue
		}
		seen[name] = true
		mentioned := p.types[name]
		fmt.Fprintf(b, "\n## %s\n\n%s\n%s", name, mentioned.doc, p.body(mentioned))
		p.sections(b, mentioned, seen)
	}
}

var shortNames = regexp.MustCompile(`shortName=\{?([a-z;,]+)`)

func shortName(kind *apiType) string {
	for _, m := range kind.markers {
		if found := shortNames.FindStringSubmatch(m); found != nil {
			return strings.TrimRight(found[1], ",;")
		}
	}
	return ""
}

// body renders the section of a type: a table of its fields or values, or else its underlying type, and its rules.
func (p *apiPackage) body(t *apiType) string {
	var b strings.Builder
	switch {
	case len(t.fields) > 0:
		b.WriteString("\n| field | type | |\n|---|---|---|\n")
		for _, f := range p.flatten(t) {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, p.typeName(f.goType), cell(f.description()))
		}
	case len(t.constants) > 0:
		b.WriteString("\n| value | |\n|---|---|\n")
		for _, c := range t.constants {
			fmt.Fprintf(&b, "| `%s` | %s |\n", c.value, cell(c.doc))
		}
	default:
		fmt.Fprintf(&b, "\nType: %s.%s\n", p.typeName(t.expr), constraints(t.markers))
	}
	if rules := celRules(t.markers); len(rules) > 0 {
		b.WriteString("\nRules:\n\n")
		for _, rule := range rules {
			fmt.Fprintf(&b, "* %s\n", rule)
		}
	}
	return b.String()
}

// flatten returns the fields of a struct, including those of its inlined structs. It omits Kubernetes' TypeMeta.
func (p *apiPackage) flatten(t *apiType) []field {
	var out []field
	for _, f := range t.fields {
		switch name := localName(f.goType); {
		case f.name == "-":
		case f.name != "":
			out = append(out, f)
		case p.types[name] != nil:
			out = append(out, p.flatten(p.types[name])...)
		}
	}
	return out
}

// mentions lists the types of this package that a type's fields use.
func (p *apiPackage) mentions(t *apiType) []string {
	exprs := []ast.Expr{t.expr}
	if len(t.fields) > 0 {
		exprs = nil
		for _, f := range p.flatten(t) {
			exprs = append(exprs, f.goType)
		}
	}
	var names []string
	for _, expr := range exprs {
		ast.Inspect(expr, func(n ast.Node) bool {
			if _, foreign := n.(*ast.SelectorExpr); foreign {
				return false
			}
			if id, ok := n.(*ast.Ident); ok && p.types[id.Name] != nil {
				names = append(names, id.Name)
			}
			return true
		})
	}
	return names
}

func localName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return localName(e.X)
	}
	return ""
}

// typeName renders a Go type as its JSON form, with a link to its description.
func (p *apiPackage) typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return p.typeName(e.X)
	case *ast.ArrayType:
		return "list of " + p.typeName(e.Elt)
	case *ast.MapType:
		return "map of " + p.typeName(e.Key) + " to " + p.typeName(e.Value)
	case *ast.SelectorExpr:
		return foreignType(e)
	case *ast.Ident:
		if p.types[e.Name] != nil {
			return fmt.Sprintf("[%s](#%s)", e.Name, strings.ToLower(e.Name))
		}
		return plainType(e.Name)
	}
	return "object"
}

func plainType(goName string) string {
	switch goName {
	case "bool":
		return "boolean"
	case "int32", "int64":
		return "integer"
	}
	return goName
}

func foreignType(e *ast.SelectorExpr) string {
	pkg := localName(e.X)
	switch name := e.Sel.Name; {
	case name == "IntOrString":
		return "integer or string"
	case name == "Time", name == "MicroTime":
		return "time"
	case name == "Duration":
		return "duration"
	case name == "Quantity", name == "ConditionStatus":
		return "string"
	case pkg == "metav1":
		return fmt.Sprintf("[%s](%s%s-v1-meta)", name, kubernetesReference, strings.ToLower(name))
	case pkg == "corev1":
		return fmt.Sprintf("[%s](%s%s-v1-core)", name, kubernetesReference, strings.ToLower(name))
	default:
		return name
	}
}

// description returns a field's doc comment together with its constraints.
func (f field) description() string {
	doc := f.doc
	if f.name == "metadata" && doc == "" {
		doc = "Name, namespace, labels and annotations."
	}
	if marker(f.markers, "optional") == "" && f.name != "metadata" {
		doc = "**Required.** " + doc
	}
	return doc + constraints(f.markers)
}

// constraints describes in words what the validation markers of a field or type require.
func constraints(markers []string) string {
	var out []string
	for _, c := range []struct{ marker, format string }{
		{"default", "Defaults to `%s`."},
		{"kubebuilder:validation:Enum", "One of `%s`."},
		{"kubebuilder:validation:Minimum", "At least %s."},
		{"kubebuilder:validation:Maximum", "At most %s."},
		{"kubebuilder:validation:MinItems", "At least %s items."},
		{"kubebuilder:validation:MaxItems", "At most %s items."},
		{"kubebuilder:validation:MinProperties", "At least %s entries."},
		{"kubebuilder:validation:MaxProperties", "At most %s entries."},
		{"kubebuilder:validation:MaxLength", "At most %s characters."},
		{"kubebuilder:validation:Pattern", "Matches %s."},
	} {
		value := marker(markers, c.marker)
		if value == "" {
			continue
		}
		if strings.HasSuffix(c.marker, "Enum") {
			value = strings.ReplaceAll(value, ";", "`, `")
		}
		if c.marker == "default" {
			value = strings.Trim(value, `"`)
		}
		if value == "1" {
			c.format = strings.NewReplacer("items", "item", "entries", "entry", "characters", "character").Replace(c.format)
		}
		out = append(out, fmt.Sprintf(c.format, value))
	}
	if len(out) == 0 {
		return ""
	}
	return " " + strings.Join(out, " ")
}

var celMessage = regexp.MustCompile(`message="((?:[^"\\]|\\.)*)"`)

func celRules(markers []string) []string {
	var rules []string
	for _, m := range markers {
		if !strings.HasPrefix(m, "kubebuilder:validation:XValidation") {
			continue
		}
		if found := celMessage.FindStringSubmatch(m); found != nil {
			rules = append(rules, strings.ReplaceAll(found[1], `\"`, `"`))
		}
	}
	return rules
}

func cell(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.TrimSpace(strings.ReplaceAll(s, "|", `\|`))
}
