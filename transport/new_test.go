package transport_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/transport"
)

// spy is a base that counts how often it is asked to close idle connections.
type spy struct {
	base
	closes int
}

func (s *spy) CloseIdleConnections() { s.closes++ }

// layer is a RoundTripper of somebody else's around another one.
type layer struct{ http.RoundTripper }

func (l layer) CloseIdleConnections() {
	l.RoundTripper.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// E38: the call reaches the base through us, and us through whoever passes it on.
func TestCloseIdleConnections(t *testing.T) {
	g := watertight.New(nil)
	s := &spy{}
	(&http.Client{Transport: transport.New(s, g)}).CloseIdleConnections()
	assert.Equal(t, 1, s.closes)

	(&http.Client{Transport: transport.New(layer{transport.New(s, g)}, g)}).CloseIdleConnections()
	assert.Equal(t, 2, s.closes)

	// A base without the method is left alone.
	(&http.Client{Transport: transport.New(always(200), g)}).CloseIdleConnections()
}

// E38: without a base the calls go through http.DefaultTransport.
func TestNilBase(t *testing.T) {
	s := &spy{base: always(204)}
	before := http.DefaultTransport
	http.DefaultTransport = s
	t.Cleanup(func() { http.DefaultTransport = before })

	tr := transport.New(nil, watertight.New(nil))
	assert.Same(t, s, tr.Base())
	assert.Equal(t, 204, open(t, tr, get(t, "http://up/")).StatusCode)
	tr.CloseIdleConnections()
	assert.Equal(t, 1, s.closes)
}

func TestNilGuard(t *testing.T) {
	assert.PanicsWithValue(t, "transport: New needs a Guard, got nil; make one with watertight.New", func() {
		transport.New(nil, nil)
	})
}

// E27, on this side: wrapping twice for one Guard would need two permits for a
// call, which at a limit of one would wait for itself. Two Guards both count.
func TestWrappedTwice(t *testing.T) {
	const yaml = `  - {name: p, bulkhead: {maxConcurrent: 1}}`
	g := guard(t, yaml)
	once := transport.New(base(streaming), g)
	twice := transport.New(once, g, transport.ReleaseAtHeaders())
	assert.Same(t, once, twice)
	assert.Same(t, g, twice.Guard())
	resp := open(t, twice, get(t, "http://up/"))
	assert.Equal(t, 1, inFlight(t, g), "without the options")
	assert.NoError(t, resp.Body.Close())
	assert.EqualValues(t, 1, only(t, g).Granted)

	other := guard(t, yaml)
	both := transport.New(twice, other)
	assert.NotSame(t, twice, both)
	assert.Same(t, twice, both.Base())
	resp = open(t, both, get(t, "http://up/"))
	assert.Equal(t, 1, inFlight(t, g))
	assert.Equal(t, 1, inFlight(t, other))
	assert.NoError(t, resp.Body.Close())
	assert.Equal(t, 1, capacity(t, g))
	assert.Equal(t, 1, capacity(t, other))
}

// Two transports for one Guard share its compartments.
func TestSharedGuard(t *testing.T) {
	g := guard(t, `  - {name: p, bulkhead: {maxConcurrent: 1}}`)
	resp := open(t, transport.New(base(streaming), g), get(t, "http://up/"))
	_, err := transport.New(base(streaming), g).RoundTrip(get(t, "http://UP:80/"))
	assert.Error(t, err)
	assert.NoError(t, resp.Body.Close())
}
