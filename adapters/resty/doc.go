// Package watertightresty puts a [watertight.Guard] under a resty client: each
// attempt needs the permits and the breakers that the policies ask for, and
// what they refuse is not tried again.
//
//	client := resty.New().SetTLSClientConfig(tls).SetRetryCount(3)
//	watertightresty.Configure(client, wt) // last
//
// The attempts go through package transport, whose documentation tells what
// holds a permit, what a breaker counts and which errors there are. The errors
// come out of resty as they are: errors.As finds the *[watertight.RejectedError],
// errors.Is its sentinel.
//
// # Last
//
// Call [Configure] after everything that sets the client's transport or changes
// it: SetTransport, SetTLSClientConfig, SetRootCertificate, SetCertificates,
// SetProxy. What they set before is kept. Called afterwards, SetTransport throws
// the Guard out, and Configure must be called again; not so if what it sets sends through
// the client's former transport, and so through the Guard. The others find a transport
// that resty v2 does not know: they log "current transport is not an
// *http.Transport instance", and what they should have set is not in force. To
// change the settings of a configured client, reach through:
//
//	t := client.GetClient().Transport.(*transport.Transport).Base().(*http.Transport)
//	t.TLSClientConfig = config
//
// SetDigestAuth alone comes after Configure: at each request it goes back to the
// transport that the client had when it was called. Settings of retries, hooks
// and conditions come before or after.
//
// The transport belongs to the http.Client, so that resty clients which share
// one are guarded together: clones, and those of resty.NewWithClient. Configure
// a client before it is cloned, and each one that shares an http.Client: the
// retries are settled for each.
//
// # Retries
//
// Every attempt is a call of its own, with its own permit and its own outcome.
// A refusal (full, open, draining, waited too long) ends the retries at once,
// without a wait and whatever conditions the client or the request has, since
// trying again right away is what bulkheads and breakers are there to prevent.
// As after its own last attempt, resty calls the retry hooks although no retry
// follows. Let [RetryWaitTimeouts] retry calls that waited for a permit in vain;
// a longer maxWait is better, as it keeps the place in the queue. Other failures
// are retried as ever, among them a time-out of the caller's own that ends the
// wait for a permit.
//
// What a fallback answers in place of a refusal (see [transport.WithFallback], which
// [WithTransport] takes) is a response to resty like any other: conditions see it, and
// may have it retried. Each attempt asks anew.
//
// One request passes the limits, or answers to a policy that it names, by its
// SetContext: see [watertight.WithoutLimits] and [watertight.WithPolicy].
//
// # Bodies
//
// Before an attempt is repeated, its response body is closed. resty leaves it
// open when the response is not parsed (SetDoNotParseResponse), and each such
// body would hold a permit that the next attempt may need. The body of the last
// attempt is the caller's, to be closed as ever. If the request ends in an error
// although there is a response, as when SetOutput names a file that cannot be
// made, its body is closed too.
package watertightresty
