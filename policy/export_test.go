package policy

// Keys returns every key that a policy file may have.
func Keys() (keys []string) {
	for _, s := range scopes {
		keys = append(keys, s.keys...)
	}
	return keys
}
