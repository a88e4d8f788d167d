package metrics

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// stateKey is which state something is in: a permit or a worker, used or idle; a
// breaker.
const stateKey = attribute.Key("watertight.state")

// grantedResult is the result of a call that was let in.
const grantedResult = "granted"

// labels are the attributes of one compartment's metrics: policy and side, and the key
// where it comes from the router or is a host, of which the table of compartments
// bounds the number. Any other key may be a secret.
type labels []attribute.KeyValue

func newLabels(c *watertight.CompartmentSnapshot) labels {
	l := make(labels, 0, 4)
	l = append(l, policyKey.String(c.Policy), sideKey.String(c.Side))
	if c.Per == policy.PerRoute.String() || c.Per == policy.PerHost.String() {
		l = append(l, keyKey.String(keyText(c.Key)))
	}
	return l
}

// with returns an option with these labels and more.
func (l labels) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(l[:len(l):len(l)], more...)...))
}

// places holds the attributes of what is recorded as it happens, by place: made once,
// since they are allocated.
type places struct{ m sync.Map }

// A place is what such metrics divide by. It has no key: what is recorded as it happens
// stays in the SDK for as long as the process lives, and keys come and go.
type place struct {
	policy string
	side   policy.Side
}

func (p *places) option(c watertight.Compartment) metric.MeasurementOption {
	at := place{c.Policy, c.Side}
	if o, ok := p.m.Load(at); ok {
		return o.(metric.MeasurementOption)
	}
	o, _ := p.m.LoadOrStore(at, metric.WithAttributeSet(attribute.NewSet(policyKey.String(c.Policy), sideKey.String(c.Side.String()))))
	return o.(metric.MeasurementOption)
}
