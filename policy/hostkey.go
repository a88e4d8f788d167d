package policy

// The longest texts that a host key is made of. No name of the DNS is longer
// than maxHostName, no port than maxPort; a Host header may be a megabyte.
const (
	maxHostName = 255
	maxPort     = 5
	maxScheme   = 16
)

// AppendHostKey appends to dst the key under which a host has its compartment,
// and returns the extended slice. It allocates only if dst is too short. host is
// the host with its port, if written: the URL's on a client, the Host header's
// on a server. Upper case, and dots at the end of the name, make no difference.
//
// On a client the key is scheme://host:port, with the default port filled in
// for http and https; an empty scheme is http. On a server it is the host alone,
// with the port unless that is 80 or 443: what a server knows of the scheme
// depends on the proxies in front of it.
//
// The key is bounded, whatever the host is: names are cut at 255 bytes, ports at
// 5, schemes at 16.
func AppendHostKey(dst []byte, side Side, scheme, host string) []byte {
	name, port := splitHost(host)
	if side == Client {
		if scheme == "" {
			scheme = "http"
		}
		if port == "" {
			port = defaultPort(scheme)
		}
		dst = appendLower(dst, scheme, maxScheme)
		dst = append(dst, "://"...)
	} else if port == "80" || port == "443" {
		port = ""
	}
	dst = appendName(dst, name)
	if port != "" {
		dst = append(dst, ':')
		dst = appendLower(dst, port, maxPort)
	}
	return dst
}

// appendName appends a host's name, in brackets if it has colons. Brackets that
// are left in the name belong to a malformed host; they are dropped so that the
// key of a key is the key itself.
func appendName(dst []byte, name string) []byte {
	if isPlainName(name) {
		return append(dst, name...)
	}
	start, colon := len(dst), false
	dst = append(dst, '[')
	for i := 0; i < len(name) && len(dst)-start <= maxHostName; i++ {
		switch c := toLower(name[i]); c {
		case '[', ']':
		case ':':
			colon = true
			fallthrough
		default:
			dst = append(dst, c)
		}
	}
	for len(dst) > start+1 && dst[len(dst)-1] == '.' {
		dst = dst[:len(dst)-1] // the cut may have bared one
	}
	if colon {
		return append(dst, ']')
	}
	return append(dst[:start], dst[start+1:]...)
}

// isPlainName reports whether a name is its own key, as nearly all are.
func isPlainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= maxHostName && name[len(name)-1] != '.'
}

func appendLower(dst []byte, s string, limit int) []byte {
	start := len(dst)
	dst = append(dst, s[:min(len(s), limit)]...)
	for i := start; i < len(dst); i++ {
		dst[i] = toLower(dst[i])
	}
	return dst
}
