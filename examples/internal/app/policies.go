package app

import (
	_ "embed"

	"github.com/watertight-go/watertight/policy"
)

//go:embed default.yaml
var defaultPolicies []byte

// DefaultPolicies returns the built-in policies.
func DefaultPolicies() (*policy.Set, error) { return policy.Parse("default.yaml", defaultPolicies) }

// loadPolicies returns the policies to start with and, if they are in a file, what
// follows it.
func loadPolicies(cfg Config) (*policy.Set, *policy.Watcher, error) {
	if cfg.Policies == nil && cfg.PolicyFile != "" {
		w, err := policy.Watch(cfg.PolicyFile)
		if err != nil {
			return nil, nil, err
		}
		return w.Set(), w, nil
	}
	if cfg.Policies != nil {
		return cfg.Policies, nil, nil
	}
	set, err := DefaultPolicies()
	return set, nil, err
}
