package policy

// AppendKey appends to dst the key by which the policy divides the requests of one
// side, and returns the extended slice. pattern is the path pattern by which the policy
// matched, as in [Decision]: without a router to name the route it stands for that.
func (r *Rule) AppendKey(dst []byte, req *Request, pattern string) []byte {
	if r.Exempt {
		return dst // what it matches is counted in one place
	}
	switch r.PerOn(req.Side) {
	case PerHeader:
		value := ""
		if values := req.Header[r.Header]; len(values) > 0 {
			value = values[0]
		}
		return AppendHeaderKey(dst, value)
	case PerHost:
		if req.Key != "" {
			return append(dst, req.Key[:min(len(req.Key), MaxKey)]...)
		}
		return AppendHostKey(dst, req.Side, req.Scheme, req.Host)
	case PerRoute:
		if req.RouteKnown {
			return append(dst, req.Route...)
		}
		return append(dst, pattern...)
	}
	return dst
}
