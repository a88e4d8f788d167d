package main

import (
	"encoding/json"
	"fmt"

	"github.com/watertight-go/watertight/policy"
)

const aboutCheck = `Reports every problem of the files, one a line:

  FILE:LINE:COLUMN: what is wrong and what would be right
  FILE:LINE:COLUMN: warning: what is allowed, but hardly meant

With -json it prints a list of objects with the members file, line, column, severity
("error" or "warning") and message. It exits with 0 if there are no errors, with 1 if
there are, and with 2 if a file cannot be read.
`

// A finding is what -json prints of a problem.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
}

func (p *program) check(args []string) int {
	var r reading
	fs := p.flags("check", "[-json] [-werror] [-lenient] [-service NAME[:VERSION]] FILE...", aboutCheck)
	r.flags(fs)
	asJSON := fs.Bool("json", false, "print JSON")
	strict := fs.Bool("werror", false, "exit with 1 for warnings, too")
	files, status, ok := p.parse(fs, args)
	if !ok {
		return status
	}
	if len(files) == 0 {
		return p.misused("check needs a file; - is standard input")
	}

	all := []finding{}
	for _, file := range files {
		name, data, err := p.read(file)
		if err != nil {
			fmt.Fprintln(p.err, "watertight:", err)
			status = exitUsage
			continue
		}
		errors, warnings := policy.Check(name, data, r.options()...)
		if (len(errors) > 0 || *strict && len(warnings) > 0) && status == exitFine {
			status = exitFaulty
		}
		all = append(all, merge(findings(errors, "error"), findings(warnings, "warning"))...)
	}
	if *asJSON {
		return p.print(all, status)
	}
	for _, f := range all {
		severity := ""
		if f.Severity == "warning" {
			severity = "warning: "
		}
		fmt.Fprintf(p.out, "%s:%d:%d: %s%s\n", f.File, f.Line, f.Column, severity, f.Message)
	}
	return status
}

func findings(problems policy.Errors, severity string) (all []finding) {
	for _, e := range problems {
		all = append(all, finding{e.File, e.Line, e.Column, severity, e.Msg})
	}
	return all
}

// merge makes one list in order of position of two that are in order.
func merge(a, b []finding) (all []finding) {
	for len(a) > 0 && len(b) > 0 {
		first := &a
		if b[0].Line < a[0].Line || b[0].Line == a[0].Line && b[0].Column < a[0].Column {
			first = &b
		}
		all = append(all, (*first)[0])
		*first = (*first)[1:]
	}
	return append(append(all, a...), b...)
}

// print prints a value as JSON, and returns the status that the program ends with.
func (p *program) print(v any, status int) int {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		fmt.Fprintln(p.err, "watertight:", err)
		return exitUsage
	}
	return status
}
