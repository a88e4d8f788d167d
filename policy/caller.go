package policy

import (
	"net/http"
	"strings"
)

// The headers in which ServiceComb, Go Chassis and Spring Cloud Huawei tell a server
// which service calls. The first is the name itself, the others are JSON objects that
// have it as a member.
var callerHeaders = [...]struct{ name, member string }{
	{"X-Cse-Src-Microservice", ""},
	{"X-Cse-Context", `"x-cse-src-microservice"`},
	{"X-Invocation-Context", `"x-microservice-name"`},
}

// calledBy reports whether a request says that the service calls.
func calledBy(h http.Header, service string) bool {
	for _, header := range callerHeaders {
		for _, value := range h[header.name] {
			if header.member == "" && value == service || header.member != "" && hasMember(value, header.member, service) {
				return true
			}
		}
	}
	return false
}

// hasMember reports whether the JSON object has the member, with its quotes, and that
// text as its value. It takes no memory. A member of an object further in counts as well:
// whoever may write the header may write either.
func hasMember(object, member, text string) bool {
	for {
		_, rest, found := strings.Cut(object, member)
		if !found {
			return false
		}
		object = rest
		value, isMember := strings.CutPrefix(strings.TrimLeft(rest, " \t"), ":")
		if !isMember {
			continue
		}
		value, isText := strings.CutPrefix(strings.TrimLeft(value, " \t"), `"`)
		if isText && len(value) > len(text) && value[:len(text)] == text && value[len(text)] == '"' {
			return true
		}
	}
}
