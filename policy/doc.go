// Package policy says which limits apply to which HTTP request. It reads policy
// files, or the same written in code, checks them strictly, and matches requests
// of both sides of the wire against them. It enforces nothing itself.
//
//	set, err := policy.Load("watertight.yaml") // or policy.New(policy.Config{...})
//	if err != nil {
//		return err // every problem, as FILE:LINE:COLUMN: MESSAGE
//	}
//	d := set.Match(&policy.Request{Side: policy.Client, Host: "payments.internal"})
//	// d.Bulkhead and d.Breaker are the policies that limit the request.
//
// # The file
//
// A policy file is YAML; docs/policies.md in the repository has every key.
//
//	version: 1
//	policies: # the first match wins, separately for bulkhead and for breaker
//	  - name: health
//	    match: [{path: /healthz}]
//	    exempt: true # ends both searches: never limited
//	  - name: reports
//	    side: server # or client, or both, the default
//	    match: # one entry must match, with all its fields; without match, everything does
//	      - path: /reports/{id} # a path pattern of http.ServeMux
//	        method: [GET]
//	        headers: {X-Plan: {exact: free}}
//	      - route: /exports/{id} # the pattern of the router
//	      - path: {prefix: /archive/} # or exact, suffix, contains, regexp
//	        not: {query: {dry: {exact: "true"}}}
//	    per: route # a compartment for each route, or policy, host, header:NAME
//	    mode: enforce # or observe, which refuses nothing and counts
//	    bulkhead: {maxConcurrent: 20, maxQueue: 40, maxWait: 1s}
//	    reject: {status: {wait_timeout: 503}, retryAfter: 2s}
//	  - name: payments
//	    side: client
//	    match: [{host: payments.internal}] # or "*.internal"
//	    bulkhead: {maxConcurrent: 50, maxWait: 100ms}
//	    breaker: {failureRate: 50, slowCall: 800ms, openFor: 30s}
//
// Durations are written as in Go, rates in percent. Inside [] and {} a pattern
// with braces needs quotes: [{path: "/reports/{id}"}].
//
// Nothing is guessed: an unknown key, a value out of range, a condition that could
// never hold, an entry that would match everything by accident are errors, all of
// them reported at once. What is allowed but hardly meant is in [Set.Warnings].
//
// # ServiceComb
//
// [Load] reads the governance files of ServiceComb and Spring Cloud Huawei as well;
// docs/servicecomb.md maps every field of theirs. The command watertight checks and
// explains files of both kinds.
//
// # Cost
//
// Matching allocates nothing. Policies are found by host, path, route, method and a
// header's exact value, whatever their number: in 50 to 300 ns on the machine where that
// was last measured, with 10 policies as with 10,000 (BenchmarkMatch). Those that ask only
// for a query, a part of the path or of a header, or by a regular expression, or say only
// what must not match, are asked one by one, some 15 ns each.
package policy
