package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/examples/internal/app"
	"github.com/watertight-go/watertight/examples/internal/tracestore"
)

// A server is the one that the load goes to: started here, or somebody's.
type server interface {
	url() string
	begin(ctx context.Context) error // the load begins now
	snapshot(ctx context.Context) (watertight.Snapshot, error)
	// tallied returns what the server's hooks told; nil if they are not ours.
	tallied() *tally
	// trace draws the latest trace with a span of that name, if it can with one
	// that has the given attribute; "" if none is kept.
	trace(ctx context.Context, span string, with attribute.KeyValue) (string, error)
	close()
}

// An ownServer runs in this process.
type ownServer struct {
	app   *app.App
	tally *tally
}

func (s *ownServer) url() string { return s.app.URL() }

func (s *ownServer) begin(context.Context) error { return nil }

func (s *ownServer) snapshot(context.Context) (watertight.Snapshot, error) {
	return s.app.Guard().Snapshot(), nil
}

func (s *ownServer) tallied() *tally { return s.tally }

func (s *ownServer) trace(_ context.Context, span string, with attribute.KeyValue) (string, error) {
	if s.app.Traces() == nil {
		return "", nil
	}
	t, ok := s.app.Traces().Latest(span, func(s *tracestore.Span) bool {
		v, ok := s.Attribute(with.Key)
		return ok && v == with.Value
	})
	if !ok {
		t, ok = s.app.Traces().Latest(span, nil)
	}
	if !ok {
		return "", nil
	}
	return t.String(), nil
}

func (s *ownServer) close() {
	// The verdict is given before: what is cut off now was told.
	_ = s.app.Shutdown(context.Background())
}

// A target is a server that somebody else runs. Its counts from before the load
// are subtracted.
type target struct {
	base   string
	client *http.Client // not guarded: to look must be possible
	before map[[3]string]watertight.CompartmentSnapshot
}

func newTarget(base string) *target {
	return &target{base: base, client: &http.Client{Timeout: 5 * time.Second}}
}

func (t *target) url() string { return t.base }

func (t *target) begin(ctx context.Context) error {
	s, err := t.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("is an example server running at %s? %w", t.base, err)
	}
	t.before = make(map[[3]string]watertight.CompartmentSnapshot)
	for _, c := range s.Compartments {
		t.before[[3]string{c.Policy, c.Side, c.Key}] = c
	}
	return nil
}

func (t *target) snapshot(ctx context.Context) (watertight.Snapshot, error) {
	var s watertight.Snapshot
	body, err := t.get(ctx, "/debug/watertight.json")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, err
	}
	for i := range s.Compartments {
		c := &s.Compartments[i]
		old := t.before[[3]string{c.Policy, c.Side, c.Key}]
		c.Granted -= old.Granted
		c.Left -= old.Left
		for reason, n := range old.Rejected {
			c.Rejected[reason] -= n
		}
	}
	return s, nil
}

func (t *target) tallied() *tally { return nil }

func (t *target) trace(ctx context.Context, span string, _ attribute.KeyValue) (string, error) {
	body, err := t.get(ctx, "/debug/traces?n=1&span="+url.QueryEscape(span))
	return string(body), err
}

func (t *target) get(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s%s: %s", t.base, path, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 4<<20))
}

func (t *target) close() { t.client.CloseIdleConnections() }
