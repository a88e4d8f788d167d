package watertightresty

import "github.com/watertight-go/watertight/transport"

// An Option configures [Configure].
type Option interface{ apply(*options) }

type options struct {
	transport         []transport.Option
	retryWaitTimeouts bool
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// WithTransport gives options to the [transport.New] beneath the client. Given
// more than once, all of them count. They are without effect if the client's
// transport is one of the same Guard already.
func WithTransport(opts ...transport.Option) Option {
	return optionFunc(func(o *options) { o.transport = append(o.transport, opts...) })
}

// RetryWaitTimeouts lets the client's retry conditions decide about calls that
// waited for a permit in vain, as they do about other errors. Without it these
// are refusals like any other.
func RetryWaitTimeouts() Option {
	return optionFunc(func(o *options) { o.retryWaitTimeouts = true })
}
