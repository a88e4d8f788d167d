package watertightresty_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// guard makes a Guard from native YAML.
func guard(t testing.TB, yaml string) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return watertight.New(set)
}

const (
	onePermit = "{version: 1, policies: [{name: hosts, side: client, bulkhead: {maxConcurrent: 1}}]}"

	tripsAtOnce = `
version: 1
policies:
  - name: hosts
    side: client
    bulkhead: {maxConcurrent: 1, maxWait: 200ms, maxQueue: 1}
    breaker: {minCalls: 1, openFor: 1h}
`
)

// hosts returns the one compartment that the Guard has.
func hosts(t testing.TB, g *watertight.Guard) watertight.CompartmentSnapshot {
	t.Helper()
	all := g.Snapshot().Compartments
	require.Len(t, all, 1)
	return all[0]
}

// upstream is a RoundTripper that answers by itself and counts.
type upstream struct {
	calls  atomic.Int64
	open   atomic.Int64 // bodies handed out and not closed
	answer func() (status int, err error)
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.calls.Add(1)
	if r.Body != nil {
		r.Body.Close()
	}
	status, err := u.answer()
	if err != nil {
		return nil, err
	}
	u.open.Add(1)
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: -1, Request: r,
		Body: &counted{Reader: strings.NewReader("body"), open: &u.open},
	}, nil
}

type counted struct {
	io.Reader
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return nil
}

func always(status int) *upstream {
	return &upstream{answer: func() (int, error) { return status, nil }}
}

func failing(err error) *upstream {
	return &upstream{answer: func() (int, error) { return 0, err }}
}

// client returns one with three retries, a second or more apart.
func client(u http.RoundTripper) *resty.Client {
	return resty.New().SetTransport(u).SetLogger(&log{}).SetRetryCount(3).
		SetRetryWaitTime(time.Second).SetRetryMaxWaitTime(time.Minute)
}

// log keeps what resty logs as an error.
type log struct {
	mu     sync.Mutex
	errors []string
}

func (l *log) Errorf(format string, _ ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, format)
}
func (*log) Warnf(string, ...any)  {}
func (*log) Debugf(string, ...any) {}

func on503(r *resty.Response, _ error) bool { return r.StatusCode() == 503 }
func onStatus(status int) resty.RetryConditionFunc {
	return func(r *resty.Response, _ error) bool { return r.StatusCode() == status }
}

func onError(_ *resty.Response, err error) bool { return err != nil }

// pause returns a RetryAfter that counts its calls.
func pause(d time.Duration, calls *int) resty.RetryAfterFunc {
	return func(*resty.Client, *resty.Response) (time.Duration, error) {
		*calls++
		return d, nil
	}
}
