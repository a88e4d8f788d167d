// Package conformance has only tests: that other people's programs, protocols and
// test suites do not notice that Watertight stands in front of them. It is a module
// of its own, since what they need is nothing that users of the library should
// have to download.
//
// A foreign suite is copied from the module cache into a temporary folder, patched
// so that a Guard with generous limits stands in its way, and run there, beside an
// unpatched copy. net/http's own is run in place, with some of its files overlaid.
// Each test has to end as it does without us; the few that cannot are listed with the
// reason beside them.
package conformance
