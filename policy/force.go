package policy

import "go.yaml.in/yaml/v3"

// A Force holds a breaker in one state.
type Force uint8

const (
	// ForceNone is the zero value: the breaker does its work.
	ForceNone Force = iota
	// ForceOpen refuses every call.
	ForceOpen
	// ForceClosed lets every call in, and counts none.
	ForceClosed
)

// String returns "open" or "closed", as a policy file writes it, and "none" for
// ForceNone, which a file says by leaving the key out.
func (f Force) String() string { return nameOf(forceNames[:], f, "Force") }

var forceNames = [...]string{ForceNone: "none", ForceOpen: "open", ForceClosed: "closed"}

func readForce(n *yaml.Node) (Force, string) {
	for i, name := range forceNames {
		if n.Kind == yaml.ScalarNode && n.Value == name && Force(i) != ForceNone {
			return Force(i), ""
		}
	}
	return 0, must(n, "open or closed") + didYouMean(n, forceNames[ForceOpen:])
}
