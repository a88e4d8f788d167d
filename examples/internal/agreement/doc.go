// Package agreement holds a test: that the snapshot, the live page, the spans, the
// metrics and the log tell the same of an incident, and what the callers and the
// handlers of that incident have counted themselves.
package agreement
