package watertight_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/policy"
)

// E53, invariant 5: a million hosts, routes or tenants, each seen once, in a table
// that has room for a thousand. Those that calls are inside of, and those whose
// breaker is not closed, stay; of the rest the latest are there, and nothing else
// is: neither compartments nor memory.
func TestAMillionKeys(t *testing.T) {
	keys, room := 1_000_000, 1000
	if raceEnabled {
		keys = 100_000
	}
	for per, test := range map[string]struct {
		request func(i int) *policy.Request
		key     func(i int) string
	}{
		"host": {
			func(i int) *policy.Request {
				return &policy.Request{Side: policy.Server, Host: "H" + strconv.Itoa(i) + ".example.com:80"}
			},
			func(i int) string { return "h" + strconv.Itoa(i) + ".example.com" },
		},
		"route": {
			func(i int) *policy.Request {
				return &policy.Request{Side: policy.Server, RouteKnown: true, Route: "/" + strconv.Itoa(i)}
			},
			func(i int) string { return "/" + strconv.Itoa(i) },
		},
		"header:X-Tenant": {
			func(i int) *policy.Request {
				return &policy.Request{Side: policy.Server, Header: http.Header{"X-Tenant": {strconv.Itoa(i)}}}
			},
			strconv.Itoa,
		},
	} {
		t.Run(per, func(t *testing.T) {
			g := guard(t, fmt.Sprintf(`
version: 1
defaults: {maxCompartments: %d}
policies: [{name: all, side: server, per: "%s", bulkhead: {maxConcurrent: 1}, breaker: {minCalls: 1, openFor: 24h}}]
`, room, per))
			const inside, open = 10, 10
			var stay []string
			for i := range inside + open {
				call := admit(t, g, test.request(i))
				if i < inside {
					defer call.Release()
				} else {
					call.SettleFailure()
					call.Release()
				}
				stay = append(stay, test.key(i))
			}
			goroutines := runtime.NumGoroutine()
			var early int64
			for i := inside + open; i < keys; i++ {
				c, err := g.Admit(t.Context(), test.request(i))
				if err != nil {
					t.Fatal(i, err)
				}
				c.SettleStatus(200)
				c.Release()
				if i == keys/10 {
					early = heap()
				}
			}
			// Race mode keeps books of its own.
			if grown := heap() - early; !raceEnabled {
				assert.Less(t, grown, int64(64<<10), "memory is flat")
			}
			assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)

			want := slices.Clone(stay)
			for i := keys - (room - len(stay)); i < keys; i++ {
				want = append(want, test.key(i))
			}
			slices.Sort(want)
			var got []string
			for _, c := range g.Snapshot().Compartments {
				got = append(got, c.Key)
			}
			require.Equal(t, want, got)
			for i := range inside + open {
				err := bulkhead.ErrFull
				if i >= inside {
					err = breaker.ErrOpen
				}
				refused(t, g, test.request(i), err)
			}
		})
	}
}

// heap returns how much memory is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // pools let go in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A caller that calls itself by the name of the overflow compartment is counted there,
// and does not make a second one of that name.
func TestCallerThatNamesItselfOverflow(t *testing.T) {
	g := guard(t, "{version: 1, defaults: {maxCompartments: 1}, policies: [{name: all, side: server, per: host, bulkhead: {maxConcurrent: 1}}]}")
	host := func(name string) *policy.Request { return &policy.Request{Side: policy.Server, Host: name} }
	admit(t, g, host("(overflow)")) // while there still is room
	admit(t, g, host("a"))
	refused(t, g, host("b"), bulkhead.ErrFull)
	assert.EqualValues(t, 1, compartment(t, g, "all", "(overflow)").InFlight)
	assert.Equal(t, []string{"(overflow)", "a"}, keys(g))
}

// FuzzCompartmentKey: whatever a caller makes up, the same request meets the same
// compartment, keys that a caller has a say in are bounded, and the snapshot stays
// JSON that says which compartments there are.
func FuzzCompartmentKey(f *testing.F) {
	for _, s := range []string{"", "a", "A.example.com:443", "[::1]:80", "\x00\xff", "(none)", "(overflow)", "x\r\nSet-Cookie: a=b", "\u2028<script>"} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, host, route, tenant string) {
		for per, longest := range map[string]int{"host": 16 + 3 + 255 + 2 + 6, "route": len(route), "header:X-Tenant": 64, "policy": 0} {
			for _, side := range []policy.Side{policy.Server, policy.Client} {
				if per == "route" && side == policy.Client {
					continue
				}
				g := guard(t, fmt.Sprintf(`{version: 1, policies: [{name: all, side: %s, per: "%s", bulkhead: {maxConcurrent: 1}}]}`, side, per))
				request := func() *policy.Request {
					return &policy.Request{
						Side: side, Method: route, Scheme: "http", Host: host, EscapedPath: route,
						Header: http.Header{"X-Tenant": {tenant}}, RouteKnown: per == "route", Route: route,
					}
				}
				call := admit(t, g, request())
				if per == "route" && route == "" {
					continue // nothing limits what has no route
				}
				rejected := refused(t, g, request(), bulkhead.ErrFull)

				var read watertight.Snapshot
				text, err := json.Marshal(g.Snapshot())
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(text, &read))
				require.Len(t, read.Compartments, 1)
				key := g.Snapshot().Compartments[0].Key
				require.LessOrEqual(t, len(key), longest)
				if per == "header:X-Tenant" { // which may be a secret
					require.Empty(t, rejected.Key)
					require.NotRegexp(t, "[^ -~…]", key)
				} else {
					require.Equal(t, key, rejected.Key)
				}
				if utf8.ValidString(key) {
					require.Equal(t, key, read.Compartments[0].Key)
				}
				call.Release()
				admit(t, g, request()).Release()
			}
		}
	})
}
