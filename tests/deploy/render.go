// Renders the chart's templates with Go's own text/template, the engine that Helm uses, for machines without Helm.
//
// Input on standard input: {"Chart": {...}, "Release": {...}, "Values": {...}}. Arguments: the templates, `_helpers.tpl`
// among them. Only the functions of Helm that the chart uses are here; another one is an error.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"
)

func indent(width int, text string) string {
	pad := strings.Repeat(" ", width)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func toYaml(value any) string {
	switch found := value.(type) {
	case map[string]any:
		if len(found) == 0 {
			return "{}"
		}
		names := make([]string, 0, len(found))
		for name := range found {
			names = append(names, name)
		}
		sort.Strings(names)
		lines := make([]string, 0, len(names))
		for _, name := range names {
			lines = append(lines, scalar(name)+":"+below(found[name]))
		}
		return strings.Join(lines, "\n")
	case []any:
		if len(found) == 0 {
			return "[]"
		}
		lines := make([]string, 0, len(found))
		for _, each := range found {
			lines = append(lines, "- "+strings.TrimLeft(indent(2, toYaml(each)), " "))
		}
		return strings.Join(lines, "\n")
	default:
		return scalar(value)
	}
}

func below(value any) string {
	switch found := value.(type) {
	case map[string]any:
		if len(found) > 0 {
			return "\n" + indent(2, toYaml(value))
		}
	case []any:
		if len(found) > 0 {
			return "\n" + indent(2, toYaml(value))
		}
	}
	return " " + toYaml(value)
}

func scalar(value any) string {
	text, err := json.Marshal(value)
	must(err)
	return string(text)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var data map[string]any
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	must(decoder.Decode(&data))
	chart := template.New("chart").Option("missingkey=zero")
	chart.Funcs(template.FuncMap{
		"include": func(name string, with any) (string, error) {
			var out bytes.Buffer
			err := chart.ExecuteTemplate(&out, name, with)
			return out.String(), err
		},
		"toYaml":     toYaml,
		"nindent":    func(width int, text string) string { return "\n" + indent(width, text) },
		"quote":      func(value any) string { return scalar(fmt.Sprint(value)) },
		"contains":   func(part string, text string) bool { return strings.Contains(text, part) },
		"trimSuffix": func(end string, text string) string { return strings.TrimSuffix(text, end) },
		"trunc": func(width int, text string) string {
			if len(text) > width {
				return text[:width]
			}
			return text
		},
		"default": func(usual any, given any) any {
			if set, _ := template.IsTrue(given); set {
				return given
			}
			return usual
		},
		"dict": func(pairs ...any) map[string]any {
			made := map[string]any{}
			for index := 0; index+1 < len(pairs); index += 2 {
				made[fmt.Sprint(pairs[index])] = pairs[index+1]
			}
			return made
		},
	})
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		must(err)
		_, err = chart.New(filepath.Base(path)).Parse(string(text))
		must(err)
	}
	for _, path := range os.Args[1:] {
		if name := filepath.Base(path); strings.HasSuffix(name, ".yaml") {
			fmt.Println("---")
			must(chart.ExecuteTemplate(os.Stdout, name, data))
		}
	}
}
