package policy

import (
	"fmt"
	"time"
)

// A draft is what both a file and a Config become before it is checked, so that
// the rules for the values exist once. It keeps apart what was written from what
// was left out, and knows where it was written.
type draft struct {
	maxCompartments field[int]
	idle            field[time.Duration]
	policies        []policyDraft
}

// A field is one value of a draft.
type field[T any] struct {
	name string // as messages say it: policy "a": bulkhead.maxWait
	at   at
	text string // as it was written in a file
	v    T
	set  bool // it was written
	bad  bool // it was written, and is already reported
}

// ok reports whether v is what was written.
func (f *field[T]) ok() bool { return f.set && !f.bad }

// written returns the value as it was written, for messages.
func (f *field[T]) written() string {
	if f.text != "" {
		return bare(f.text)
	}
	return fmt.Sprint(f.v)
}

// at is a place in a file, both numbers from 1. Zero: in code.
type at struct{ line, column int }

type policyDraft struct {
	place    at
	label    string // as messages call the policy
	broken   bool   // what limits it may be among what is already reported
	name     field[string]
	side     field[Side]
	per      field[perValue]
	mode     field[Mode]
	exempt   field[bool]
	match    []matchDraft
	bulkhead *bulkheadDraft
	breaker  *breakerDraft
	reject   rejectDraft
}

// A perValue is a Per with what belongs to it.
type perValue struct {
	per    Per
	header string // of PerHeader, as it was written
}

type matchDraft struct {
	place    at
	label    string
	broken   bool // a part of it is already reported
	methods  []field[string]
	path     field[string] // as a pattern
	pathText textDraft
	route    field[string]
	host     field[string]
	headers  []valueDraft
	query    []valueDraft
	not      []matchDraft
}

// isEmpty reports whether nothing was written.
func (d *matchDraft) isEmpty() bool {
	return len(d.methods) == 0 && !d.path.set && len(d.pathText) == 0 && !d.route.set && !d.host.set &&
		len(d.headers) == 0 && len(d.query) == 0 && len(d.not) == 0
}

// A valueDraft is a condition on the values of a header or of a parameter.
type valueDraft struct {
	name field[string] // its name is the list's
	text textDraft
}

// A textDraft holds those operators of a condition on a text that were written.
type textDraft []operatorDraft

type operatorDraft struct {
	kind operatorKind
	field[string]
}

type bulkheadDraft struct {
	place         at
	label         string
	maxConcurrent field[int]
	maxQueue      field[int]
	maxWait       field[time.Duration]
}

type breakerDraft struct {
	place             at
	failureRate       field[float64]
	slowCall          field[time.Duration]
	slowCallRate      field[float64]
	window            field[struct{}] // whether it was written; its parts follow
	windowCalls       field[int]
	windowTime        field[time.Duration]
	minCalls          field[int]
	openFor           field[time.Duration] // also as openFor.initial
	openForMax        field[time.Duration]
	multiplier        field[float64]
	jitter            field[float64]
	heed              field[time.Duration] // openFor.retryAfter
	halfOpenCalls     field[int]
	probeTimeout      field[time.Duration]
	halfOpenMaxWait   field[time.Duration]
	failureStatusList field[[]field[StatusRange]]
	settle            field[Settle]
	force             field[Force]
}

type rejectDraft struct {
	given      field[struct{}] // whether it was written; its parts follow
	status     []statusDraft
	retryAfter field[time.Duration]
}

type statusDraft struct {
	reason Reason
	status field[int]
}
