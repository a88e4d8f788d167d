// Package metrics turns what a [watertight.Guard] decides into OpenTelemetry
// spans and metrics, and slog records.
//
//	wt := watertight.New(policies, watertight.WithHooks(metrics.New()))
//
// That uses the global TracerProvider and MeterProvider, the global propagator and
// slog.Default(), whichever they are when something happens, so the order in
// which a program sets things up does not matter. The package knows the
// OpenTelemetry API only; until the program installs an SDK, nothing is
// recorded.
//
// # Spans
//
// Each is a direct child of the span that the caller was in, which on a server
// is that of otelhttp, or of whatever stands outside the middleware:
//
//	bulkhead.wait      from the arrival in the queue until the permit was granted, the
//	                   wait was over or the caller left; only of calls that queued
//	bulkhead.grant     from the permit's grant to its release; the spans of the call
//	                   itself, as those of the handler, hang under this one
//	bulkhead.reject    turned away by a bulkhead, or while draining
//	breaker.reject     turned away by a breaker: open, or half-open with no probe left
//	breaker.trip       this call saw the breaker open, by its outcome as a rule
//	breaker.half_open  this call saw the open period end
//	breaker.close      this call saw the probes end well
//
// The last five are moments. Both kinds of reject have the status Error and the
// reason as error.type; no other span is marked, so that an alert on errors
// counts each refusal once. A wait that ended without a permit says how in
// watertight.result: after wait_timeout and draining there is a reject span as
// well, after canceled there is none, since the caller left of its own accord.
// A call that only a breaker watches holds no permit and has no bulkhead.grant.
//
// What a policy with mode: observe would have turned away has the same spans, with
// watertight.mode and without the status Error: the call went on. A wait that it would
// not have survived is told at the end of the call, and nothing is waited for.
//
// A trip has links to the calls behind it, at most 8, the latest last: those of the
// breaker's window that failed, or that were slow; those in flight that were overdue, of
// which only some are known if many are sampled; after half-open, the probes. A link leads
// to the bulkhead.grant of the call, or to the caller's span if the call had no permit,
// and only where that was sampled. A caller is linked once, and not at all if it is the
// parent of the trip.
//
// A breaker that nobody called changes its state when the next call looks. The
// span is then in the trace of that call, at that time, and
// watertight.breaker.late_ms says how long the change had been due.
//
// The attributes, with what they are on:
//
//	watertight.policy                  all
//	watertight.side                    all: server or client
//	watertight.key                     all; empty if the policy has one compartment only
//	watertight.queue.position          wait: 1 was next
//	watertight.result                  wait: granted, wait_timeout, canceled or draining
//	watertight.waited_ms               grant: 0 if it did not queue
//	watertight.limit                   grant, bulkhead.reject
//	watertight.in_flight               grant (this call included), bulkhead.reject
//	watertight.queued                  bulkhead.reject: the calls that were waiting
//	watertight.mode                    rejects and transitions: observe, if the policy only observes
//	watertight.leaked                  grant: true if the response body was never closed
//	watertight.reason                  rejects: full, wait_timeout, open or draining
//	watertight.retry_after_ms          rejects, if known
//	watertight.breaker.state           breaker.reject: open or half_open
//	watertight.breaker.from, .to       transitions: the states
//	watertight.breaker.cause           transitions: failure_rate, slow_call_rate, overdue, probes, ...
//	watertight.breaker.failure_rate    transitions, in percent, if there were enough calls
//	watertight.breaker.slow_call_rate  likewise
//	watertight.breaker.calls           transitions: how many calls the rates are taken over
//	watertight.breaker.overdue         trip by overdue calls: how many were in flight beyond slowCall
//	watertight.breaker.responded       likewise: how many got an answer in the last slowCall
//	watertight.breaker.open_for_ms     trip: how long the breaker stays open
//	watertight.breaker.late_ms         transitions that nobody looked for in time
//	watertight.link.outcome            links of a trip: failed, slow, failed_slow or overdue
//	watertight.link.took_ms            links of a trip: how long the call took, so far if overdue
//
// Nothing comes from the request but the key, which is cut to 64 bytes, with
// what is not printable replaced.
//
// # Metrics
//
// They have the shape of OpenTelemetry's conventions for connection pools. Most are
// read from the Guard's snapshot when somebody collects, so calls pay nothing for them
// and the series of a compartment go when it goes:
//
//	watertight.bulkhead.permits           by watertight.state: used or idle
//	watertight.bulkhead.limit
//	watertight.bulkhead.pending_requests  calls that wait for a permit
//	watertight.calls                      by watertight.result: granted, canceled, or the reason of a refusal
//	watertight.observed_calls             of those granted, by watertight.result: why they would have been refused, had the policy not mode: observe
//	watertight.leaked                     response bodies that were never closed; client side only
//	watertight.breaker.state              breakers by watertight.state: 1 for the one that it is in
//	watertight.breaker.trips              times that it opened
//	watertight.breaker.open_remaining     seconds until it lets probes through; absent while it is not open
//	watertight.breaker.failure_rate       0 to 1; absent while there are too few calls
//	watertight.breaker.slow_call_rate     likewise
//	watertight.pool.workers               by watertight.state: used or idle
//	watertight.pool.limit
//	watertight.pool.pending_tasks
//	watertight.compartments               of a policy that divides its calls, without a key
//	watertight.evicted_compartments       likewise: those that went because they were idle, or to make room
//	watertight.policy.reloads             by watertight.result: ok or failed
//	watertight.policy.reload_failing      1 while the latest policies are not in force
//	watertight.policy.info                1, with the digest of the policies in force as watertight.policy.version
//	watertight.policy.load_timestamp      when they came into force, in seconds since 1970
//
// All but those of the policies as a whole have watertight.policy and watertight.side,
// and watertight.key where it is a route or a host. The key of a policy with per: header
// may be a secret: its compartments are added up, with what those had counted that were
// dropped, and their rates are left out. Only that of the keys beyond the table has a
// watertight.key, (overflow). The rest is recorded as it happens, by policy and side alone:
//
//	watertight.bulkhead.wait_time    histogram, in seconds, of the calls that had to wait
//	watertight.bulkhead.use_time     histogram, in seconds, from grant to release
//	watertight.breaker.transitions   by watertight.breaker.to and watertight.breaker.cause
//
// The number of series is bounded by the compartments, but may exceed the 2000 of one
// metric at which OpenTelemetry's SDK begins to add series up: six of
// watertight.breaker.state and six of watertight.calls for each compartment reach it with
// 334 hosts. Raise it with sdk/metric.WithCardinalityLimit where there are more.
//
// # Logs
//
// One slog record each, at level Warn for what is trouble and Info for the rest, with
// the context of the call for handlers that want it, and with trace_id and span_id if
// a span is in it:
//
//	breaker tripped, half-open, closed
//	call refused; would have been refused
//	limit changed                           by a reload
//	compartment dropped                     idle, or to make room
//	too many keys, new ones share a compartment; and the end of that
//
// The Guard itself logs what must be heard also without these hooks, to its own logger:
// reloads, and what somebody should mend. To its records about calls, such as those of
// response bodies that were never closed, this package adds the ids of the trace.
// The key is in records for routes and hosts only. docs/logs.md has each text and
// attribute.
//
// A flood is cut short: of refusals by one compartment for one reason, the first is
// written, and from then on, each 10 seconds, how many there were; until 10 seconds
// pass without one. Of a breaker's transitions the first 5 of each kind are written; of
// all kinds, no more than 20 compartments are told apart at a time. What was written
// and what is said to be left out add up to what happened. [watertight.Guard.Close]
// writes the last counts at once. WithoutLogs turns these records off.
//
// # Order
//
// On a server, otelhttp belongs outside. It then measures the refusals too, and
// the Guard's spans hang under its span:
//
//	handler := otelhttp.NewHandler(middleware.New(wt)(mux), "")
//
// Without it, or anything else that starts a span, the Guard's spans are
// children of the span named in the request's headers, if the propagator finds
// one there.
//
// In a client, otelhttp belongs beneath. A refused call then has no span of a
// request that never was, and that of an admitted one hangs under
// bulkhead.grant:
//
//	client := &http.Client{Transport: transport.New(otelhttp.NewTransport(nil), wt)}
//
// Headers are only written by otelhttp, never by this package.
//
// # Sampling
//
// Samplers see the name of a span and its parent, not its attributes, which are
// made only for spans that are recorded. A call whose trace is not sampled leaves none
// of these spans. It costs what the SDK needs to find that out, unless
// [WithParentBasedSampler] says that there is no need to ask.
//
// # Cost
//
// To what a call allocates without hooks nothing is added with noop providers, with
// metrics alone ([WithoutSpans]), or in a trace that is not sampled
// ([WithParentBasedSampler]; without that option the SDK allocates twice to find out). A
// span that is recorded takes one allocation here, one for the copy of the request that
// carries it, and those of the SDK; all of that costs less than a span of otelhttp.
// docs/performance.md has the figures, beside otelhttp's, and says who waits when
// telemetry hangs: no call, if spans are exported in batches.
package metrics
