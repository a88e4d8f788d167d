// Package middleware puts a [watertight.Guard] in front of an http.Handler:
// each request needs the permits and the breakers that the policies ask for,
// or is turned away with a problem document before the handler runs.
//
//	mux := http.NewServeMux()
//	mux.HandleFunc("GET /reports/{id}", report)
//	http.ListenAndServe(":8080", middleware.New(wt)(mux))
//
// The permit is held until the handler returns, panics or exits, also if it
// hijacked the connection.
//
// # Order
//
// Put it inside whatever must always run (recovery, access logs, otelhttp) and
// outside whatever costs something (authentication against a database, the
// handlers themselves). Answers that must survive an overload, such as health
// probes, belong outside of it or under an exempt policy.
//
// An http.TimeoutHandler belongs outside too: it returns at its deadline, while
// the handler may still be working. Outside, the permit stays with the work;
// inside, it is given back at the deadline and the work goes on uncounted.
//
// # Routes
//
// With per: route, the default, each route is a compartment of its own. The
// route is asked of the adapter (package adapters/chi), of [WithRouter], or of
// the wrapped handler itself if that is an http.ServeMux. With none of these,
// the policy's path pattern that matched stands for the route, and a policy
// without one has a single compartment for all requests. A request for which
// the router has no route (404, 405) passes unlimited.
//
// # What the caller sees
//
// A refused caller gets status 503, or 408 if it waited too long, unless the
// policy's reject section says otherwise; a body of type
// application/problem+json whose type and reason tell why; Retry-After; and
// Cache-Control: no-store. The handler did not run. Beware that some clients
// and proxies send a request again on their own when they see 408, also a
// POST; one line of policy (reject: {status: {wait_timeout: 503}}) avoids it.
//
// Two settings of http.Server matter here. WriteTimeout runs while a request
// waits for a permit; unless it leaves room for maxWait, the answer cannot be
// sent. And on HTTP/2 the unread body of a request that waits takes its part of
// what the connection may receive, by default all of it, so that one upload in
// the queue can stall another that was let in: with
// HTTP2Config.MaxReceiveBufferPerStream at 64 KiB and
// MaxReceiveBufferPerConnection at 4 MiB it takes some sixty of them.
//
// [WithRejectHandler] answers in another way.
//
// After a refusal an HTTP/1 client that still owes its body may send it for one
// more second; then the connection closes.
//
// # What the handler sees
//
// Without a breaker the handler gets the writer that the middleware got. A
// breaker needs the status: then the handler gets a writer of its own, with
// those of http.Flusher, http.Hijacker, http.Pusher and io.ReaderFrom that the
// other has, through which http.ResponseController reaches it. Three things
// cannot be kept: http.CloseNotifier, which is deprecated, unless the other writer
// has what net/http's own have; the unexported method by which http.MaxBytesReader
// has the server close the connection after a body that is a little too large; and
// the place in your code that the server's log names when a status is set twice.
//
// The request is the one that the middleware got, or a copy of it if its
// context needs an addition: by a hook, or because the Guard wraps several
// handlers and must know the request again. What the handler leaves on the copy,
// such as Pattern, path values and parsed forms, is copied back when it ends: who
// watches requests from another goroutine, as to log the slow ones, should note what
// it needs of them before the handler begins. A refused request gets its route as
// Pattern if a router is known, so that whoever measures further out knows it by that.
//
// # One Guard, several handlers
//
// Wrapping several handlers with one Guard is fine: they share its
// compartments, and a request that passes two of them, as with chi's Use and
// With, counts once. Two Guards both count. A handler that sends its request
// through the same router once more needs [Reentrant].
package middleware
