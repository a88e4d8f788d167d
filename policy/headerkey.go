package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// perHeader checks which header a policy divides its requests by, and returns it
// in canonical form.
func (p *problems) perHeader(f *field[perValue]) string {
	name := http.CanonicalHeaderKey(f.v.header)
	switch {
	case f.bad:
	case f.v.per != PerHeader && name != "":
		p.errorf(f.at, "%s is %v, but there is a Header; write PerHeader, or leave the header out", f.name, f.v.per)
	case f.v.per != PerHeader:
	case name == "":
		p.errorf(f.at, "%s is header without a name; write one, as in %sX-Tenant", f.name, perHeaderPrefix)
	case !isToken(f.v.header):
		p.errorf(f.at, "%s is header with %s, which is not the name of a header; write one, as in %sX-Tenant", f.name, quote(f.v.header), perHeaderPrefix)
	case name == "Host":
		p.errorf(f.at, "%s is header with Host, which net/http keeps apart from the headers; write host", f.name)
	default:
		return name
	}
	return ""
}

// What a key of a header shows at most, and how much of that is a hash.
const (
	maxHeaderKey  = 64
	shownOfHashed = 41
	hashDigits    = 20
	hashMark      = "…"
)

// noHeader is the key of the requests that do not have the header.
const noHeader = "(none)"

// AppendHeaderKey appends to dst the key under which a value of a header has its
// compartment, and returns the extended slice. It allocates only if dst is too
// short, or the value has more than a kilobyte. The value is the header's first.
//
// The key is at most 64 bytes of printable text. It is the value itself, if that is
// printable ASCII, short enough and does not start with a parenthesis. Of any other
// value it shows how it starts, and a part of its SHA-256 hash, so that two values
// that differ have different keys, and no value has that of another kind: without
// the header, or with an empty one, the key is "(none)".
//
// The value may be a secret, and then so is the key: it is not meant for logs,
// metrics, error texts or answers.
func AppendHeaderKey(dst []byte, value string) []byte {
	switch {
	case value == "":
		return append(dst, noHeader...)
	case isPlainKey(value):
		return append(dst, value...)
	}
	for i := range min(len(value), shownOfHashed) {
		c := value[i]
		if c < ' ' || c > '~' {
			c = '?'
		}
		dst = append(dst, c)
	}
	dst = append(dst, hashMark...)
	var buf [1024]byte
	sum := sha256.Sum256(append(buf[:0], value...))
	return hex.AppendEncode(dst, sum[:hashDigits/2])
}

func isPlainKey(value string) bool {
	if len(value) > maxHeaderKey || value[0] == '(' {
		return false
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}
