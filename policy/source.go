package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDocuments bounds how many documents of a file are read. A native file has one,
// but an application of Spring may keep many in one file.
const maxDocuments = 1000

// documents returns the documents of a file that are not empty. What keeps the rest of
// the file from being read is reported.
func (p *problems) documents(data []byte) []*yaml.Node {
	docs, err := documents(data, maxDocuments)
	if err != nil {
		at, msg := syntaxProblem(data, err)
		p.errorf(at, "%s", "the file is not valid YAML: "+msg)
	}
	return slices.DeleteFunc(docs, func(doc *yaml.Node) bool { return isNull(doc.Content[0]) })
}

// document returns the one document of a native file. If it returns nil, it has
// reported why, or something else was wrong.
func (p *problems) document(docs []*yaml.Node) *yaml.Node {
	switch {
	case len(docs) == 0 && len(p.errors) == 0:
		p.errorf(at{1, 1}, "the file is empty; a policy file starts with version: 1 and a list of policies")
	case len(docs) > 1:
		p.errorf(place(docs[1]), "a second document starts here; a policy file holds one: put all policies into one list")
	}
	if len(docs) == 0 {
		return nil
	}
	return docs[0].Content[0]
}

// documents reads at most limit documents. With an error it returns those that came
// before it.
func documents(data []byte, limit int) (docs []*yaml.Node, err error) {
	// The parser reports errors as values, but it also has panics for what it
	// holds impossible. A file must never take the process down.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the parser gave up: %v", v)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for len(docs) < limit {
		doc := new(yaml.Node)
		if err := dec.Decode(doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return docs, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// yamlPrefix is what the parser puts before a message, with a line at times.
var yamlPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// hints say what most likely led to an error of the parser, by a part of it.
var hints = []struct{ part, hint string }{
	{"did not find expected ','", `inside [] and {} text with braces, brackets, commas or ? must be in quotes, as in {path: "/reports/{id}"}`},
	{"did not find expected alphabetic or numeric character", starHint},
	{"unknown anchor", starHint},
	{"found a tab character", "indent with spaces"},
	{"cannot start any token", "text that starts with @, ` or % must be in quotes, and indentation is made of spaces, not tabs"},
	{"mapping values are not allowed", "check the indentation, and the colon of the key before it, and put text with a colon and a space in quotes"},
	{"could not find expected ':'", "write a colon and a space after each key"},
	{"found incompatible YAML document", "leave the line with %YAML out"},
	{"found unexpected end of stream", "the quotes that begin here do not end"},
	{"did not find expected '-'", "check the indentation"},
	{"did not find expected key", "check the indentation"},
}

// wideColon is what keyboards for Chinese have for a colon.
const (
	wideColon  = "\uff1a"
	writeColon = "write : and a space in the place of " + wideColon
)

const starHint = `text that starts with * or & must be in quotes, as in "*.internal"`

// syntaxProblem says where and what is wrong with what the YAML parser refuses.
func syntaxProblem(data []byte, err error) (at, string) {
	msg := yamlPrefix.ReplaceAllString(err.Error(), "")
	for _, h := range hints {
		if strings.Contains(msg, h.part) {
			msg += "; " + h.hint
			break
		}
	}
	if bytes.Contains(data, []byte(wideColon)) {
		msg += "; if it is meant for a colon, " + writeColon
	}
	return locate(data, err.Error()), msg
}

// locate finds where the parser can first have known of an error: the shortest
// part of the file, from its start, that has the same error.
//
// The parser itself gives only a line, not always, and often that of the line
// before or of the list that holds the fault. Parsing again is slow, but there
// are some 30 rounds at most, and that only to report an error.
func locate(data []byte, text string) at {
	fails := func(end int) bool {
		_, err := documents(data[:end], maxDocuments)
		return err != nil && err.Error() == text
	}
	// Where each line ends. The last one fails, so both searches find some end
	// that fails with one before it that does not; there may be others earlier,
	// in some list that was left open at that point.
	var ends []int
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	ends = append(ends, len(data))
	line := sort.Search(len(ends)-1, func(i int) bool { return fails(ends[i]) })
	start := 0
	if line > 0 {
		start = ends[line-1]
	}
	// Where each character of that line ends.
	var chars []int
	for i := range string(data[start:ends[line]]) {
		if i > 0 {
			chars = append(chars, start+i)
		}
	}
	return at{line + 1, 1 + sort.Search(len(chars), func(i int) bool { return fails(chars[i]) })}
}
