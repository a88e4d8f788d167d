// Package breaker is a circuit breaker that judges calls by two rates at once:
// how many fail, and how many are slow.
package breaker
