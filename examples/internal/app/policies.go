package app

import (
	_ "embed"

	"github.com/watertight-go/watertight/policy"
)

//go:embed default.yaml
var defaultPolicies []byte

// DefaultPolicies returns the built-in policies.
func DefaultPolicies() (*policy.Set, error) { return policy.Parse("default.yaml", defaultPolicies) }

func loadPolicies(cfg Config) (*policy.Set, error) {
	switch {
	case cfg.Policies != nil:
		return cfg.Policies, nil
	case cfg.PolicyFile != "":
		return policy.Load(cfg.PolicyFile)
	}
	return DefaultPolicies()
}
