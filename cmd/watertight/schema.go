package main

import (
	_ "embed" // the schema
	"io"
)

//go:embed policy.schema.json
var schema string

const aboutSchema = `Prints a JSON Schema of native policy files. An editor completes and checks a file by it;
the YAML extensions of most do if the file's first line is

  # yaml-language-server: $schema=policy.schema.json

It knows less than check does: not that a name is taken, or what a pattern may be.
`

func (p *program) schema(args []string) int {
	fs := p.flags("schema", "", aboutSchema)
	others, status, ok := p.parse(fs, args)
	if !ok {
		return status
	}
	if len(others) > 0 {
		return p.misused("schema takes no arguments")
	}
	if _, err := io.WriteString(p.out, schema); err != nil {
		return p.misused("%v", err)
	}
	return exitFine
}
