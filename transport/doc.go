// Package transport puts a [watertight.Guard] in front of an
// http.RoundTripper: each call needs the permits and the breakers that the
// policies ask for, for each host unless they say otherwise, or is refused
// before a connection is touched.
//
//	client := &http.Client{Transport: transport.New(nil, wt)}
//
// # The permit
//
// It is held until the response body ends, since the body is the load: until
// EOF, an error or Close, whichever is first. Bodies that are empty by protocol
// (HEAD, 204, 304, length 0) hold nothing; a base of your own must hence set
// ContentLength as net/http does, -1 if it is unknown. The connection that comes
// with a 101 is held beyond EOF, until it fails or is closed. A body that is
// forgotten gives its permit back when the request's context ends, and if that
// never happens, when the garbage collector finds it; that is counted as leaked
// and logged. [ReleaseAtHeaders] gives it back as soon as the response headers
// are in.
//
// Once Close has returned the permit is back, whoever it was that gave it back.
//
// # The outcome
//
// It is filed with the breaker when the response headers are in. An error of
// the transport, or a status in the policy's failureStatus, is a failure; a
// call that took longer than slowCall, its time in the queue excluded, is slow.
// How fast the body is read says more about the reader than about the host, and
// does not count. A caller that cancels is no failure; see
// [watertight.Call.SettleFailure].
//
// With settle: body in its policy, a call lasts until its body ends. One that breaks
// off is a failure; see [watertight.Call.SettleBody] for the rest. A body that the
// garbage collector finds is no outcome. Responses without a body, and a 101, settle
// at headers all the same.
//
// The Retry-After of a 429 or a 503, in seconds or as a date, tells the breaker how
// long to stay open if it trips, as far as openFor.retryAfter of its policy allows. A
// date is taken relative to the response's Date, so that clocks need not agree.
//
// # Errors
//
// A refusal is a *[watertight.RejectedError]; through an http.Client it arrives
// inside a *url.Error, so use errors.Is and errors.As:
//
//	resp, err := client.Do(req)
//	if errors.Is(err, breaker.ErrOpen) { ... }
//
// The request body is closed, no response is made up. If the caller's context
// ends while it waits, the error is the context's own; http.Client.Timeout is
// part of that context. Of what is deprecated, Request.Cancel ends no wait, but the
// base gets it as it is; and the base's CancelRequest finds no request whose context
// a hook has added to, since the base gets a copy.
//
// # Exceptions
//
// What the policies say about a call, a program can say better at times:
//
//   - what an answer or an error means to the breaker: [WithClassifier]. By default 408
//     and 429 are answers like others, since the host is well enough to give them;
//     failureStatus: [408, 429, 500-599] is one line of policy;
//   - which calls share a compartment: [WithKey];
//   - what a refused call gets in place of its error: [WithFallback];
//   - that one request is not limited, or by which policy it is:
//     [watertight.WithoutLimits] and [watertight.WithPolicy], in its context. The
//     redirects and retries of an http.Client keep that context;
//   - that responses do not count while they stream: [ReleaseAtHeaders].
//
// Each is asked by the [Transport] that has it; others of the same Guard go by the
// policies.
//
// # Order
//
// Instrumentation that opens a span for each request on the wire (otelhttp)
// belongs beneath: New(otelhttp.NewTransport(nil), wt), so that its span hangs
// under bulkhead.grant and no request that never was is recorded. Retries
// belong above, so that each attempt is a call of its own.
package transport
