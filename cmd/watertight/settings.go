package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// A setting is one of a policy's effective settings, as a policy file writes it.
type setting struct {
	key   string // below bulkhead or breaker: halfOpen.calls
	value any    // a number, a text, or a list of texts
}

func bulkheadSettings(b *policy.BulkheadSettings) []setting {
	return []setting{
		{"maxConcurrent", b.MaxConcurrent},
		{"maxQueue", b.MaxQueue},
		{"maxWait", duration(b.MaxWait)},
	}
}

// breakerSettings leaves out what is off and has no value that says so.
func breakerSettings(b *policy.BreakerSettings) []setting {
	all := []setting{{"failureRate", b.FailureRate}}
	if b.SlowCall > 0 {
		all = append(all, setting{"slowCall", duration(b.SlowCall)}, setting{"slowCallRate", b.SlowCallRate})
	}
	if b.Window.Calls > 0 {
		all = append(all, setting{"window.calls", b.Window.Calls})
	} else {
		all = append(all, setting{"window.time", duration(b.Window.Time)})
	}
	all = append(all, setting{"minCalls", b.MinCalls})
	if b.Backoff == (policy.Backoff{Max: b.OpenFor, Multiplier: b.Backoff.Multiplier}) {
		all = append(all, setting{"openFor", duration(b.OpenFor)})
	} else {
		all = append(all,
			setting{"openFor.initial", duration(b.OpenFor)},
			setting{"openFor.max", duration(b.Backoff.Max)},
			setting{"openFor.multiplier", b.Backoff.Multiplier},
			setting{"openFor.jitter", b.Backoff.Jitter},
			setting{"openFor.retryAfter", duration(b.Backoff.RetryAfter)})
	}
	all = append(all,
		setting{"halfOpen.calls", b.HalfOpen.Calls},
		setting{"halfOpen.probeTimeout", duration(max(0, b.HalfOpen.ProbeTimeout))},
		setting{"halfOpen.maxWait", duration(b.HalfOpen.MaxWait)})
	statuses := make([]string, len(b.FailureStatus))
	for i, r := range b.FailureStatus {
		statuses[i] = r.String()
	}
	all = append(all, setting{"failureStatus", statuses}, setting{"settle", b.Settle.String()})
	if b.Force != policy.ForceNone {
		all = append(all, setting{"force", b.Force.String()})
	}
	return all
}

// duration writes a duration without the units of which there are none.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// nested puts keys such as halfOpen.calls into objects of their own.
func nested(all []setting) map[string]any {
	object := map[string]any{}
	for _, s := range all {
		first, second, inner := strings.Cut(s.key, ".")
		if !inner {
			object[first] = s.value
			continue
		}
		if object[first] == nil {
			object[first] = map[string]any{}
		}
		object[first].(map[string]any)[second] = s.value
	}
	return object
}

func (s setting) text() string {
	switch v := s.value.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	}
	return fmt.Sprint(s.value)
}

// where says where a setting comes from: a line of the file, or the defaults.
func where(set *policy.Set, r *policy.Rule, file string, keys ...string) string {
	for _, key := range keys {
		if line, _ := set.Where(r, key); line > 0 {
			return file + ":" + strconv.Itoa(line)
		}
	}
	return "default"
}

// keysOf returns the keys under which a setting may be written.
func keysOf(part, key string) []string {
	full := part + "." + key
	if key == "openFor.initial" || key == "openFor" {
		return []string{part + ".openFor.initial", part + ".openFor"}
	}
	return []string{full}
}

// rejections returns how a policy refuses, for the reasons of one of its parts.
func rejections(r *policy.Rule, reasons ...policy.Reason) (all []setting) {
	if r.Mode != policy.Enforce {
		all = append(all, setting{"mode", r.Mode.String()})
	}
	for _, reason := range reasons {
		all = append(all, setting{"reject.status." + reason.String(), r.RejectStatus(reason)})
	}
	return append(all, setting{"reject.retryAfter", duration(r.RetryAfter)})
}

// widest returns the length of the longest text.
func widest(texts []string) (n int) {
	for _, text := range texts {
		n = max(n, len(text))
	}
	return cmp.Or(n, 1)
}
