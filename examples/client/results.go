package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// A phase is a part of the run.
type phase int

const (
	before phase = iota // all is well
	during              // the fault is on
	after               // the upstream is well again
	phases
)

// results are what the callers of a flow saw.
type results struct {
	mu       sync.Mutex // guards the fields below
	took     [phases][]time.Duration
	statuses map[int]int
	errors   map[string]int // by what they say, of calls that got no answer
}

func newResults() *results {
	return &results{statuses: make(map[int]int), errors: make(map[string]int)}
}

func (r *results) add(p phase, status int, err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[p] = append(r.took[p], took)
	if err != nil {
		r.errors[err.Error()]++
	} else {
		r.statuses[status]++
	}
}

// calls returns how many there were, and how many were answered 200.
func (r *results) calls() (all, ok int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, took := range r.took {
		all += len(took)
	}
	return all, r.statuses[200]
}

// p returns the q-quantile of the calls that began in a phase; 0 if none did.
func (r *results) p(ph phase, q float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return quantile(r.took[ph], q)
}

// answers lists what came back, the successes first.
func (r *results) answers() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, status := range sortedKeys(r.statuses) {
		parts = append(parts, fmt.Sprintf("%d: %d", status, r.statuses[status]))
	}
	n := 0
	for _, count := range r.errors {
		n += count
	}
	if n > 0 {
		parts = append(parts, fmt.Sprintf("no answer: %d", n))
	}
	return strings.Join(parts, ", ")
}

// firstError returns one of the errors, "" if there is none.
func (r *results) firstError() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range sortedKeys(r.errors) {
		return text
	}
	return ""
}

// quantile returns the smallest of ds that at least a share of q of them does
// not exceed.
func quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Clone(ds)
	slices.Sort(sorted)
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}
