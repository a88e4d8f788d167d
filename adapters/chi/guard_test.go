package watertightchi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// guard makes a Guard from native YAML.
func guard(t testing.TB, yaml string, opts ...watertight.Option) *watertight.Guard {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return watertight.New(set, opts...)
}

// oneEach gives each route a single permit and no queue.
const oneEach = "{version: 1, policies: [{name: routes, side: server, bulkhead: {maxConcurrent: 1}}]}"

// keys returns the keys of the compartments that a policy has.
func keys(g *watertight.Guard, name string) []string {
	keys := []string{}
	for _, c := range g.Snapshot().Compartments {
		if c.Policy == name {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// compartment returns the one compartment with that policy and key.
func compartment(t testing.TB, g *watertight.Guard, name, key string) watertight.CompartmentSnapshot {
	t.Helper()
	for _, c := range g.Snapshot().Compartments {
		if c.Policy == name && c.Key == key {
			return c
		}
	}
	require.Failf(t, "no such compartment", "policy %q, key %q", name, key)
	return watertight.CompartmentSnapshot{}
}

// ok answers 200 with a body.
func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// A gate is a handler that answers 200 when it is opened. It tells of every
// request that has come in.
type gate struct {
	entered chan struct{}
	open    chan struct{}
}

func newGate() *gate {
	return &gate{entered: make(chan struct{}, 100), open: make(chan struct{})}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	g.entered <- struct{}{}
	<-g.open
	io.WriteString(w, "ok")
}

// hold sends a request that stays in the gate, and returns when it is there.
func (g *gate) hold(h http.Handler, target string) (answer <-chan *httptest.ResponseRecorder) {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() { done <- get(h, target) }()
	<-g.entered
	return done
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	return do(h, httptest.NewRequest(http.MethodGet, target, nil))
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func requireFull(t testing.TB, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	var problem struct{ Reason string }
	require.NoError(t, json.NewDecoder(w.Body).Decode(&problem))
	require.Equal(t, "full", problem.Reason)
}
