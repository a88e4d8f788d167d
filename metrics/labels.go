package metrics

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// stateKey is which state something is in: a permit or a worker, used or idle; a
// breaker.
const stateKey = attribute.Key("watertight.state")

// versionKey is which policies are in force: the digest of their file.
const versionKey = attribute.Key("watertight.policy.version")

// overflowKey is the key of the compartment that keys share when their table is full.
const overflowKey = "(overflow)"

// grantedResult is the result of a call that was let in.
const grantedResult = "granted"

// labels are the attributes of one compartment's metrics: policy and side, and the key
// where it comes from the router or is a host, of which the table of compartments
// bounds the number. Any other key may be a secret; the compartments of a policy with
// such keys share their labels, and what is observed for each is added up. Only that of
// the keys beyond the table is told apart, which is there as long as the policy is.
type labels struct {
	attributes []attribute.KeyValue
	shared     bool
}

func newLabels(c *watertight.CompartmentSnapshot) labels {
	l := labels{attributes: make([]attribute.KeyValue, 0, 4)}
	l.attributes = append(l.attributes, policyKey.String(c.Policy), sideKey.String(c.Side))
	switch c.Per {
	case policy.PerRoute.String(), policy.PerHost.String():
		l.attributes = append(l.attributes, keyKey.String(keyText(c.Key)))
	case policy.PerHeader.String():
		if c.Key == overflowKey {
			l.attributes = append(l.attributes, keyKey.String(c.Key))
		} else {
			l.shared = true
		}
	}
	return l
}

// id tells labels apart.
func (l labels) id() attribute.Distinct {
	set := attribute.NewSet(slices.Clone(l.attributes)...)
	return set.Equivalent()
}

// with returns an option with these labels and more.
func (l labels) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(l.attributes), more...)...))
}

// A table is the compartments of a policy on a side, together.
type table struct{ policy, side string }

func tableOf(c *watertight.CompartmentSnapshot) table { return table{c.Policy, c.Side} }

func (t table) labels() metric.MeasurementOption {
	return metric.WithAttributes(policyKey.String(t.policy), sideKey.String(t.side))
}

// divides reports whether a compartment is one of those that a key chooses.
func divides(c *watertight.CompartmentSnapshot) bool { return c.Per != policy.PerPolicy.String() }

// places holds the attributes of what is recorded as it happens, by side and policy: made
// once, and in the slice that Record takes, since both are allocated. They have no key:
// what is recorded as it happens stays in the SDK for as long as the process lives, and
// keys come and go. The zero value is ready to use.
type places struct {
	mu    sync.Mutex                                          // held to put a larger map in the place of one
	known [3]atomic.Pointer[map[string][]metric.RecordOption] // by side; what is in a map stays as it is
}

func (p *places) options(c watertight.Compartment) []metric.RecordOption {
	if o, ok := p.of(c.Side)[c.Policy]; ok {
		return o
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	larger := maps.Clone(p.of(c.Side))
	if larger == nil {
		larger = make(map[string][]metric.RecordOption)
	}
	o := []metric.RecordOption{metric.WithAttributeSet(
		attribute.NewSet(policyKey.String(c.Policy), sideKey.String(c.Side.String())))}
	larger[c.Policy] = o
	p.known[c.Side].Store(&larger)
	return o
}

func (p *places) of(s policy.Side) map[string][]metric.RecordOption {
	if m := p.known[s].Load(); m != nil {
		return *m
	}
	return nil
}
