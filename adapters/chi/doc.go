// Package watertightchi makes every route of a chi router a compartment of its
// own.
//
//	r := chi.NewRouter()
//	r.Use(chimw.RequestID, chimw.Recoverer) // before: what must always run
//	r.Use(watertightchi.Middleware(wt))
//	r.Get("/reports/{id}", report)
//
// It is package middleware with the one thing added that chi does not offer: to
// know the route before the request is routed. With per: route, the default on
// a server, /reports/1 and /reports/2 share the compartment "/reports/{id}";
// match.route in a policy is compared with the same pattern. The key is what
// RoutePattern of the request's chi.Context says once routing is over, in full
// ("/api/reports/{id}" for a route of a router mounted at /api), so it is the
// same wherever the middleware stands: Use on the root router, on a router
// under Route or Mount, With, or Group. All methods of a pattern share it.
//
// A request without a route (404, 405, a method that chi does not know) passes
// unlimited, and is counted under the policy "(unmatched)".
//
// # Order
//
// The route is looked up in the state in which the request arrives. What
// changes the path or the method for chi's routing must come before:
// StripSlashes, CleanPath, URLFormat, GetHead. Behind it, what they change for a route
// to be found seems to have none, and passes unlimited though a handler runs. One that
// stands in a mounted router comes too late for a middleware in the router above.
// Middleware that
// answers by itself, such as Heartbeat, is free of all limits if it comes
// before. chi runs no middleware, this one included, on a router without routes.
//
// # Other places
//
// The middleware may also wrap a router from outside:
//
//	http.ListenAndServe(":8080", watertightchi.Middleware(wt)(r))
//
// What it returns is then a chi.Routes like the router, and may be mounted.
// Where there is no chi router around it nor right behind it, nothing can tell
// the route, and it does what package middleware does without a router: the
// policy's own path pattern stands for the route.
//
// chi sees into a router that is mounted, not into one that is hidden in a
// plain handler, as by r.Mount("/api", http.StripPrefix("/api", sub)). For a
// middleware above, all that is behind such a handler is one route ("/api/*");
// Use in the hidden router sees the same; With in it sees the whole pattern.
//
// A request that a handler sends through its router once more stays where it is:
// in the compartment of its first route; see middleware.Reentrant.
//
// Routes must be registered before the first request.
//
// # Cost
//
// One look-up for each request. If the middleware stands in the root router, the
// routes of that one whose patterns are made of literal segments and {name} are
// found in a tree of this package, which takes less than half as long as chi's.
// So are routes anywhere that are their own path, once they were met. All others are
// looked up in chi's tree, in a route context from a pool. Nothing is allocated but
// what chi itself does: nothing for a route of the router in which the middleware
// stands; for one of a router mounted there up to two strings, and two more for each
// mount on the way.
package watertightchi
