package transport

// An Option configures [New].
type Option interface{ apply(*Transport) }

type optionFunc func(*Transport)

func (f optionFunc) apply(t *Transport) { f(t) }

// ReleaseAtHeaders gives permits back when the response headers are in instead
// of at the end of the body. The limit then bounds how many calls wait for
// their host, and no longer how many responses stream at once. A breaker with settle:
// body then settles at headers too, since nobody watches the body.
func ReleaseAtHeaders() Option {
	return optionFunc(func(t *Transport) { t.atHeaders = true })
}
