package policy

// AppendHostKey appends the key of a host.
func AppendHostKey(dst []byte, side Side, scheme, host string) []byte { return append(dst, host...) }
