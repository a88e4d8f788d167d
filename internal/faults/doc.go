// Package faults tests the client side on networks that misbehave. Between a real
// server and a real client stands a proxy that is slow, trickles, resets, truncates,
// refuses or says nothing. After each fault everything must be as it was before: no
// call in flight or queued, no goroutine and no memory left, the limit exact, and the
// breaker closed again.
//
// It is a module of its own, so that nobody who uses watertight has to download the
// proxy.
package faults
