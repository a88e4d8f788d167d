package transport

import "net/http"

// WithKey lets f divide the calls of policies with per: host, which are then one
// compartment for each key instead of for each host: for each shard behind one
// name, say, or for the group of hosts that one machine serves. A call for which f
// returns "" goes by its host. Policies with another per do not ask.
//
// The key appears where a host would: in errors, snapshots, spans and metrics. So it
// must not be a secret, and there should be few. There are never more than
// maxCompartments at once, and what is longer than [policy.MaxKey] bytes is cut there.
//
// f is called once for each call, refused ones included, and must be safe for
// concurrent use; it must not change the request. If it panics, the panic goes on to
// the caller. The default is the host; the last one given wins, and nil changes
// nothing.
func WithKey(f func(r *http.Request) string) Option {
	return optionFunc(func(t *Transport) {
		if f != nil {
			t.key = f
		}
	})
}
