// Package watertight isolates failure in a Go service: each slow route, slow
// dependency or noisy caller gets a bounded share of the process, so that a
// leak in one compartment does not sink the rest.
//
// A [Guard] holds the compartments that a set of policies calls for. Each
// compartment has a bulkhead (permits and a bounded queue), a circuit breaker
// that watches the failure rate and the slow-call rate, or both. One Guard
// serves both sides of a process:
//
//	policies, err := policy.Load("watertight.yaml")
//	wt := watertight.New(policies, watertight.WithHooks(metrics.New()))
//
//	r.Use(watertightchi.Middleware(wt))                      // server, per chi route
//	mux := middleware.New(wt)(http.NewServeMux())            // server, net/http alone
//	client := &http.Client{Transport: transport.New(nil, wt)} // client, per host
//	watertightresty.Configure(restyClient, wt)               // resty
//
// A request meets its compartments in this order:
//
//	match policies, keys -> breaker allows? -> bulkhead acquires -> the call -> release, outcome
//
// The breaker comes first, since nobody should queue for a dependency that is
// known to be down; a call that queued asks it again if its state changed
// meanwhile. Packages middleware and transport do all of this for HTTP, and
// [Guard.Do] for any other call; [Guard.Admit] is for those who build such a
// thing themselves. [Guard.Pool] gives work goroutines of its own.
package watertight
