// Package watertightresty puts a [watertight.Guard] under a resty client: each
// attempt needs the permits and the breakers that the policies ask for, and
// what they refuse is not tried again.
//
//	client := resty.New().SetTLSClientConfig(tls).SetRetryCount(3)
//	watertightresty.Configure(client, wt) // last
//
// # Last
//
// Call [Configure] after everything that sets the client's transport or changes
// it: SetTransport, SetTLSClientConfig, SetRootCertificate, SetCertificates,
// SetProxy, and after SetRetryAfter. What they set before is kept. Called
// afterwards, resty v2 finds a transport that it does not know: the TLS and
// proxy settings are then logged as errors and not applied, and SetTransport
// and SetRetryAfter replace what Configure installed.
//
// # Retries
//
// Every attempt is a call of its own, with its own permit and its own outcome.
// A refusal (full, open, draining, waited too long) ends the retries at once,
// whatever conditions the client or the request has, since trying again right
// away is what bulkheads and breakers are there to prevent. The error is the
// refusal's own: errors.Is and errors.As find the sentinel and the
// *[watertight.RejectedError]. Let [RetryWaitTimeouts] retry calls that waited
// for a permit in vain.
//
// Before an attempt is repeated, its response body is closed. resty leaves it
// open when the response is not parsed (SetDoNotParseResponse), and each such
// body would hold a permit that the next attempt may need. The body of the last
// attempt is the caller's, to be closed as ever. If the request ends in an error
// although there is a response, as when SetOutput names a file that cannot be
// made, its body is closed too.
package watertightresty
