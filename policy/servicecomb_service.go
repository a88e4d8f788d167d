package policy

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// A service is one of a system's services in one of its versions; empty: not known.
type service struct{ name, version string }

// Where the files of ServiceComb and of Spring say which service they belong to.
var (
	serviceNames    = []string{"servicecomb.service.name", "spring.cloud.servicecomb.service.name", "spring.cloud.servicecomb.discovery.serviceName", "spring.application.name", "service_description.name"}
	serviceVersions = []string{"servicecomb.service.version", "spring.cloud.servicecomb.service.version", "spring.cloud.servicecomb.discovery.version", "service_description.version"}
)

// identity finds in the file which service this is.
func (c *comb) identity() service {
	return service{c.firstProperty(serviceNames), c.firstProperty(serviceVersions)}
}

func (c *comb) firstProperty(paths []string) string {
	for _, path := range paths {
		if v, ok := c.property(path, maxNesting); ok && v != "" {
			return v
		}
	}
	return ""
}

// applies reports whether a section with these services is for this one.
func (c *comb) applies(f *combFields) bool {
	n := f.values["services"]
	if n == nil || isNull11(n) || n.Kind == yaml.ScalarNode && n.Value == "" {
		return true
	}
	if n.Kind != yaml.ScalarNode {
		f.drop(n, "services", "one text, such as cart or cart:1.2.0,stock")
		return false
	}
	if c.self.name == "" {
		c.findf(place(n), "%sservices is %s, but it is not known which service this is; say so by policy.Service, or by -service of the command, or leave services out", f.label, bare(n.Value))
		return false
	}
	applies := false
	for part := range strings.SplitSeq(strings.TrimRight(n.Value, ","), ",") {
		name, version, hasVersion := strings.Cut(strings.TrimRight(part, ":"), ":")
		switch {
		case strings.TrimSpace(name) != name || strings.TrimSpace(version) != version:
			c.findf(place(n), "%sservices has %s, whose spaces count, so that it is no service; write it without them", f.label, quote(part))
		case name == "" || strings.Contains(version, ":"):
			c.findf(place(n), "%sservices has %s, which no service matches; write name or name:version", f.label, quote(part))
		case name != c.self.name:
		case hasVersion && c.self.version == "":
			c.findf(place(n), "%sservices has %s, but it is not known which version of %s this is; say so by policy.Service, or by -service of the command, or leave the version out", f.label, quote(part), bare(name))
		default:
			applies = applies || !hasVersion || version == c.self.version
		}
	}
	return applies
}

// maxNesting bounds how deep placeholders and documents are followed.
const maxNesting = 32

// find returns what a document has under a path, which may stand in one key or in
// several, or nil.
func find(n *yaml.Node, path string, depth int) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode || depth == 0 {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if key == path {
			return value
		}
		if rest, ok := strings.CutPrefix(path, key+"."); ok {
			if found := find(value, rest, depth-1); found != nil {
				return found
			}
		}
	}
	return nil
}

// property returns the text that the file has under a path.
func (c *comb) property(path string, depth int) (string, bool) {
	for _, doc := range c.docs {
		if n := find(doc, path, maxNesting); n != nil && n.Kind == yaml.ScalarNode {
			return c.resolve(n.Value, depth-1)
		}
	}
	return "", false
}

// fillIn replaces the placeholders of Spring in all scalars under n by what is known
// of them here: another property of the same file, or the default.
func (c *comb) fillIn(n *yaml.Node) {
	for _, child := range n.Content {
		c.fillIn(child)
	}
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "${") {
		return
	}
	text, ok := c.resolve(n.Value, maxNesting)
	_, reported := c.filled[n.Value]
	c.filled[n.Value] = ok
	switch at := place(n); {
	case !ok:
		c.findf(at, "%s has a placeholder of Spring without a value in this file; neither the environment nor other files are read: write the value", bare(n.Value))
		return
	case !reported:
		c.warnf(at, "%s is filled in with %s; neither the environment nor other files are read: if that is not right, write the value", bare(n.Value), quote(text))
	}
	n.Value = text
}

// unfilled reports whether a value is one that is reported for its placeholders.
func (c *comb) unfilled(n *yaml.Node) bool {
	ok, reported := c.filled[n.Value]
	return reported && !ok
}

// maxResolved bounds the texts with placeholders that are looked at: they can name
// each other.
const maxResolved = 10_000

// resolve replaces placeholders, ${key} or ${key:default}.
func (c *comb) resolve(s string, depth int) (string, bool) {
	if c.resolved++; depth <= 0 || c.resolved > maxResolved {
		return "", false
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		inside, after, ok := closing(rest)
		if !ok {
			b.WriteString("${")
			s = rest
			continue
		}
		key, def, hasDefault := strings.Cut(inside, ":")
		v, ok := c.property(key, depth)
		if !ok && hasDefault {
			v, ok = c.resolve(def, depth-1)
		}
		if !ok || b.Len() > maxFile {
			return "", false
		}
		b.WriteString(v)
		s = after
	}
}

// closing splits s at the brace that closes a placeholder.
func closing(s string) (inside, after string, ok bool) {
	open := 1
	for i := range len(s) {
		switch {
		case s[i] == '{' && i > 0 && s[i-1] == '$':
			open++
		case s[i] == '}':
			if open--; open == 0 {
				return s[:i], s[i+1:], true
			}
		}
	}
	return "", "", false
}
