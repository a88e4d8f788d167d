// Package policy says which limits apply to which HTTP request: it reads policy
// files, checks them and matches requests against them.
package policy
