package middleware_test

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

// compartment returns the one compartment with that policy and key.
func compartment(t testing.TB, g *watertight.Guard, name, key string) watertight.CompartmentSnapshot {
	t.Helper()
	var found []watertight.CompartmentSnapshot
	for _, c := range g.Snapshot().Compartments {
		if c.Policy == name && c.Key == key {
			found = append(found, c)
		}
	}
	require.Len(t, found, 1, "compartments of policy %q, key %q", name, key)
	return found[0]
}

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

// ok answers 200 with a body.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })

// A gate is a handler that answers 200 when it is opened. It tells of every
// request that has come in.
type gate struct {
	entered chan *http.Request
	open    chan struct{}
}

func newGate() *gate {
	return &gate{entered: make(chan *http.Request, 100), open: make(chan struct{})}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.entered <- r
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

// reason returns why an answer is a refusal.
func reason(t testing.TB, body io.Reader) string {
	t.Helper()
	var problem struct{ Reason string }
	require.NoError(t, json.NewDecoder(body).Decode(&problem))
	return problem.Reason
}

func requireRefused(t testing.TB, w *httptest.ResponseRecorder, status int, why string) {
	t.Helper()
	require.Equal(t, status, w.Code)
	require.Equal(t, why, reason(t, w.Body))
}
