package policy

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A source reads YAML documents.
type source struct{ dec *yaml.Decoder }

func newSource(data []byte) *source {
	return &source{dec: yaml.NewDecoder(bytes.NewReader(data))}
}

// decode reads the next document; after the last it returns io.EOF.
func (s *source) decode(n *yaml.Node) (err error) {
	// The parser reports errors as values, but it also has panics for what it
	// holds impossible. A file must never take the process down.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("yaml: cannot be read: %v", v)
		}
	}()
	return s.dec.Decode(n)
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntax reports what the YAML parser found. It says the line, if it is not the
// first, only in the text of its error, and never the column.
func (p *problems) syntax(s *source, err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	p.errorf(at{line, 1}, "the file is not valid YAML: %s", msg)
}
