package watertight_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/policy"
)

// A logBook keeps the records of a logger.
type logBook struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *logBook) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// take returns the records since it was last called.
func (b *logBook) take(t testing.TB) (records []map[string]any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for dec := json.NewDecoder(&b.out); dec.More(); {
		var r map[string]any
		require.NoError(t, dec.Decode(&r))
		records = append(records, r)
	}
	return records
}

type record = map[string]any

// Each leak is logged, or counted and told of: also the last ones, when the Guard closes.
func TestLeaksAreLoggedWithoutAFlood(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var book logBook
		g := guard(t, "version: 1\npolicies:\n  - {name: p, side: client, bulkhead: {maxConcurrent: 100}}\n",
			watertight.WithLogger(book.logger()),
			watertight.WithHooks(watertight.Hooks{
				Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
					return context.WithValue(ctx, key{}, "trace")
				},
				LogAttrs: func(ctx context.Context) []slog.Attr {
					return []slog.Attr{slog.Any("trace_id", ctx.Value(key{}))}
				},
			}))
		leak := func(n int) {
			for range n {
				admit(t, g, to("a")).Leak()
			}
		}
		leak(3)
		first := record{
			"level": "WARN", "msg": "watertight: a response body was dropped without Close; its permit was held until the garbage collector found it",
			"policy": "p", "side": "client", "key": "http://a:80", "trace_id": "trace",
		}
		assert.Equal(t, []record{first}, book.take(t))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		more := func(n, ms float64) record {
			return record{
				"level": "WARN", "msg": "watertight: more response bodies were dropped without Close",
				"policy": "p", "side": "client", "key": "http://a:80", "left_out": n, "over_ms": ms,
			}
		}
		assert.Equal(t, []record{more(2, 10_000)}, book.take(t))
		time.Sleep(5 * time.Second)
		leak(4)
		assert.Empty(t, book.take(t))
		g.Close()
		assert.Equal(t, []record{more(4, 5_000)}, book.take(t))
		time.Sleep(20 * time.Second)
		leak(1)
		assert.Equal(t, []record{first}, book.take(t))
		assert.EqualValues(t, 8, compartment(t, g, "p", "http://a:80").Leaked)
	})
}

func TestReloadsAreLoggedWithoutAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logBook
		g := guard(t, "version: 1\npolicies:\n  - {name: p, breaker: {failureRate: 0.5}}\n", watertight.WithLogger(book.logger()))
		warning := book.take(t)
		require.Len(t, warning, 1)
		require.Equal(t, "watertight: a policy is hardly meant as it is", warning[0]["msg"])
		require.Contains(t, warning[0]["warning"], "test.yaml:3:")

		set, version := g.Policies(), g.Policies().Version()
		g.Reload(set)
		assert.Equal(t, append([]record{{"level": "INFO", "msg": "watertight: policies reloaded", "version": version, "policies": 1.0}}, warning...), book.take(t))
		g.ReloadFailed(errors.New("bad"))
		assert.Equal(t, []record{{
			"level": "ERROR", "msg": "watertight: the new policies are not in force, those before stay", "version": version, "error": "bad",
		}}, book.take(t))

		for range 100 {
			g.Reload(set)
			g.ReloadFailed(errors.New("bad"))
		}
		assert.Len(t, book.take(t), 9*3, "a warning goes with its reload")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.ElementsMatch(t, []record{
			{"level": "INFO", "msg": "watertight: policies reloaded more often", "left_out": 91.0, "over_ms": 10_000.0},
			{"level": "ERROR", "msg": "watertight: more new policies are not in force", "left_out": 91.0, "over_ms": 10_000.0},
		}, book.take(t))
	})
}

func TestAMisnamedPolicyIsLoggedWithTheCallsContext(t *testing.T) {
	type key struct{}
	var seen []any
	g := guard(t, "version: 1\npolicies: []\n", watertight.WithLogger(slog.New(contextHandler{func(ctx context.Context) { seen = append(seen, ctx.Value(key{})) }})))
	seen = nil // the warning that there are no policies
	_, err := g.Admit(watertight.WithPolicy(context.WithValue(t.Context(), key{}, "call"), policy.Server, "none"), on("/"))
	require.NoError(t, err)
	assert.Equal(t, []any{"call"}, seen)
}

// A contextHandler tells of the contexts of records.
type contextHandler struct{ handle func(context.Context) }

func (contextHandler) Enabled(context.Context, slog.Level) bool          { return true }
func (h contextHandler) WithAttrs([]slog.Attr) slog.Handler              { return h }
func (h contextHandler) WithGroup(string) slog.Handler                   { return h }
func (h contextHandler) Handle(ctx context.Context, _ slog.Record) error { h.handle(ctx); return nil }

// What the hooks add is left out if they panic, the record is not.
func TestLogAttrsThatPanicsLosesNoRecord(t *testing.T) {
	var book logBook
	g := guard(t, "version: 1\npolicies: [{name: p, bulkhead: {maxConcurrent: 100}}]\n", watertight.WithLogger(book.logger()),
		watertight.WithHooks(watertight.Hooks{LogAttrs: func(context.Context) []slog.Attr { panic("attrs") }}),
		watertight.WithHooks(watertight.Hooks{LogAttrs: func(context.Context) []slog.Attr { return []slog.Attr{slog.Int("n", 1)} }}))
	admit(t, g, on("/")).Leak()
	records := book.take(t)
	require.Len(t, records, 2)
	assert.Equal(t, []any{"LogAttrs", 0.0, "attrs"}, []any{records[0]["hook"], records[0]["set"], records[0]["panic"]})
	assert.Equal(t, 1.0, records[1]["n"])
}

// A logger that blocks holds up the call that it is told of, and no other; one may call
// back into the Guard.
func TestALoggerThatBlocksHoldsUpNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := make(chan struct{})
		var g *watertight.Guard
		handled := 0
		g = guard(t, "version: 1\npolicies: [{name: p, side: client, bulkhead: {maxConcurrent: 1}}]\n",
			watertight.WithLogger(slog.New(contextHandler{func(context.Context) {
				g.Snapshot()
				handled++
				<-stall
			}})))
		for i := range 30 {
			c := admit(t, g, to(fmt.Sprint(i%25)))
			go c.Leak()
			synctest.Wait()
		}
		admit(t, g, to("a")).Release()
		assert.Equal(t, 20, handled)
		close(stall)
		g.Close()
	})
}
