package policy

import (
	"bytes"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// propertiesLine is a line of a .properties file with something for ServiceComb.
var propertiesLine = regexp.MustCompile(`(?m)^[ \t]*servicecomb\.[A-Za-z]+\.[^\s:=]+[ \t]*=`)

// foreign reports a file that is neither a native one nor one of ServiceComb, if it is
// known what it is, and what to do about it.
func (p *problems) foreign(data []byte, docs []*yaml.Node) bool {
	if policies, _ := topKey(docs, is("policies")); policies != nil {
		return false // whatever else is wrong with it
	}
	if where := propertiesLine.FindIndex(data); where != nil {
		p.errors = nil // it is not valid YAML either
		p.errorf(at{1 + bytes.Count(data[:where[0]], []byte("\n")), 1}, "this is a .properties file, and only YAML is read; write servicecomb.matchGroup.NAME: | and the text below it, indented, and the same for each policy")
		return true
	}
	for _, doc := range docs {
		if p.kubernetes(doc) {
			return true
		}
	}
	if key, _ := topKey(docs, nearlyServiceComb); key != nil {
		p.errorf(place(key), "unknown key %s; did you mean servicecomb?", quote(key.Value))
		return true
	}
	if key, _ := topKey(docs, func(key string) bool { return key == "cse" || strings.HasPrefix(key, "cse.") }); key != nil {
		p.errorf(place(key), "%s is how ServiceComb named its settings before, and governance is read under servicecomb alone; write servicecomb", bare(key.Value))
		return true
	}
	for _, doc := range docs {
		var kind *yaml.Node
		topKeys(doc, func(key, value *yaml.Node) {
			if kind == nil && looksLikeKind(key, value) {
				kind = key
			}
		})
		if kind != nil {
			p.errorf(place(kind), "%s belongs below servicecomb, which this file does not have; write servicecomb: above it, and indent it and the policies", bare(kind.Value))
			return true
		}
	}
	if key, _ := topKey(docs, is("spring")); key != nil {
		p.errorf(place(key), "this is a file of a Spring application without any policy: nothing in it is under servicecomb; load the file, or what the configuration center holds, that has servicecomb.matchGroup")
		return true
	}
	return false
}

// kubernetes reports an object of Kubernetes.
func (p *problems) kubernetes(doc *yaml.Node) bool {
	kind := find(doc, "kind", 1)
	if find(doc, "apiVersion", 1) == nil || kind == nil || kind.Kind != yaml.ScalarNode {
		return false
	}
	if kind.Value != "ConfigMap" {
		p.errorf(place(kind), "this is a Kubernetes object, %s; a policy file holds policies alone", bare(kind.Value))
		return true
	}
	key, inside := place(kind), "its data"
	topKeys(doc, func(k, data *yaml.Node) {
		if k.Value != "data" || data.Kind != yaml.MappingNode || len(data.Content) == 0 {
			return
		}
		file := data.Content[0]
		for i := 0; i+1 < len(data.Content); i += 2 {
			name, text := data.Content[i], data.Content[i+1]
			if strings.Contains(text.Value, "servicecomb") || strings.Contains(text.Value, "policies:") {
				file = name
				break
			}
		}
		key, inside = place(file), bare(file.Value)
	})
	p.errorf(key, "this is a Kubernetes ConfigMap, and a policy file is one of the files in it: mount the ConfigMap and load %s from there, or move that text to a file of its own", inside)
	return true
}

// nearlyServiceComb reports whether a key was most likely meant to be servicecomb.
func nearlyServiceComb(key string) bool {
	first, _, _ := strings.Cut(key, ".")
	first = strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(first))
	return !isServiceComb(key) && distance(first, "servicecomb") <= 2
}
