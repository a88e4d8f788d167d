package conformance_test

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	_ "github.com/go-resty/resty/v2" // whose version go.mod names
)

// under lets every client that resty makes go through a Guard.
const under = `
package resty

import "net/http"

// Front is set by the tests' package outside of this one, which may import the
// adapter that imports this one.
var Front func(*Client)

func fronted(c *Client) *Client {
	if Front != nil {
		Front(c)
	}
	return c
}

// Reach finds the transport of net/http under what Front has put there.
var Reach = func(rt http.RoundTripper) http.RoundTripper { return rt }
`

// installUnder is the rest of the tests' package. That requests went through the Guard,
// that none was refused, and that nothing is left of them, is a condition of passing.
// Some tests never close what they get: that is found by the garbage collector.
const installUnder = `
package resty_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"

	"github.com/go-resty/resty/v2"

	"github.com/watertight-go/watertight"
	watertightresty "github.com/watertight-go/watertight/adapters/resty"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

type derived struct{}

func TestMain(m *testing.M) {
	set, err := policy.New(policy.Config{Policies: []policy.Policy{{
		Name:     "all",
		Side:     policy.Client,
		Bulkhead: &policy.Bulkhead{MaxConcurrent: 10000},
		Breaker:  &policy.Breaker{FailureRate: 100, MinCalls: 1_000_000, Window: policy.Window{Calls: 1_000_000}},
	}}})
	if err != nil {
		panic(err)
	}
	wt := watertight.New(set, watertight.WithHooks(watertight.Hooks{
		Grant: func(ctx context.Context, _ watertight.GrantEvent) context.Context {
			return context.WithValue(ctx, derived{}, true)
		},
	}))
	_, _ = watertightresty.Configure, transport.New
	resty.Front = func(c *resty.Client) { FRONT }
	resty.Reach = func(rt http.RoundTripper) http.RoundTripper { REACH }

	code := m.Run()
	left := left(wt)
	granted := uint64(0)
	for _, c := range wt.Snapshot().Compartments {
		granted += c.Granted
		for reason, n := range c.Rejected {
			if n > 0 {
				fmt.Println(n, "calls to", c.Key, "were refused:", reason)
				code = 1
			}
		}
	}
	if left != 0 {
		fmt.Println(left, "calls are still in flight")
		code = 1
	}
	fmt.Println("calls that came to the Guard:", granted)
	if granted == 0 {
		code = 1
	}
	os.Exit(code)
}
` + countLeft

// outside are tests that no run has, since they reach beyond this machine.
var outside = map[string]string{
	"TestClientProxy":       "asks for a proxy named sampleproxy",
	"TestSRV":               "looks up a service of google.com",
	"TestSRVInvalidService": "looks up a service that there is not",
	"TestTraceInfo":         "calls httpbin.org",
}

// shares divide the tests into processes that run beside each other: most of their time
// they sleep between attempts.
var shares = []string{"^TestClientRetryGet$", "^TestClientRetry(Hook|Count)$", "^TestClientRetryW", ""}

// resty's own tests pass as they do without us: with our transport alone under every
// client, where resty finds the transport of net/http beneath it, and with all that the
// adapter does, installed before anything else is set.
func TestResty(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("runs the tests of resty, which take half a minute and are programs of their own")
	}
	// Some tests expect that a pause was no more than some milliseconds too long, or that
	// ten calls take less than 100 of them. Their copies run at once, on a machine that is
	// busy with them.
	sources := func(t *testing.T) *suite {
		s := checkout(t, "github.com/go-resty/resty/v2")
		s.patch(t, "retry_test.go", "slept > retryMaxWaitTime+10*time.Millisecond", "slept > retryMaxWaitTime+10*time.Second")
		s.patch(t, "retry_test.go", "expected+5*time.Millisecond < slept", "expected+10*time.Second < slept")
		s.patch(t, "request_test.go", "rate.Every(100*time.Millisecond), 10", "rate.Every(time.Hour), 10")
		return s
	}
	patched := func(t *testing.T, front, reach string) *suite {
		s := sources(t)
		s.add(t, "front.go", under)
		s.patch(t, "client.go", "		saveResponseIntoFile,\n	}\n\n	return c\n", "		saveResponseIntoFile,\n	}\n\n	return fronted(c)\n")
		s.patch(t, "client.go", "c.httpClient.Transport.(*http.Transport)", "Reach(c.httpClient.Transport).(*http.Transport)")
		s.add(t, "front_test.go", strings.NewReplacer("FRONT", front, "REACH", reach).Replace(installUnder))
		return s
	}
	const reach = `
		if t, ok := rt.(*transport.Transport); ok {
			return t.Base()
		}
		return rt`
	plain := sources(t)
	alone := patched(t, "c.SetTransport(transport.New(c.GetClient().Transport, wt))", reach)
	adapter := patched(t, "watertightresty.Configure(c, wt)", reach)

	var wg sync.WaitGroup
	var mu sync.Mutex
	run := func(s *suite) (results, map[string]string) {
		all, said := make(results), make(map[string]string)
		skip := make([]string, 0, len(outside))
		for name := range outside {
			skip = append(skip, "^"+name+"$")
		}
		skip = append(skip, shares[:len(shares)-1]...)
		for _, share := range shares {
			args := []string{"-vet=off", "-run=" + share, "."}
			if share == "" {
				args = []string{"-vet=off", "-skip=" + strings.Join(skip, "|"), "."}
			}
			wg.Go(func() {
				r, out := s.run(t, args...)
				mu.Lock()
				defer mu.Unlock()
				// That of the package stands for a share.
				for _, m := range []map[string]string{r, out} {
					if v, ok := m["github.com/go-resty/resty/v2"]; ok {
						delete(m, "github.com/go-resty/resty/v2")
						m["share "+share] = v
					}
				}
				maps.Copy(all, r)
				maps.Copy(said, out)
			})
		}
		return all, said
	}
	without, _ := run(plain)
	withTransport, saidTransport := run(alone)
	withAdapter, saidAdapter := run(adapter)
	wg.Wait()

	assert.Greater(t, len(without), 300, "the suite is there")
	assert.Empty(t, differences(without, withTransport, saidTransport, nil), "with the transport")
	assert.Empty(t, differences(without, withAdapter, saidAdapter, nil), "with the adapter")
	for _, said := range []map[string]string{saidTransport, saidAdapter} {
		calls := 0
		for _, m := range regexp.MustCompile(`calls that came to the Guard: (\d+)`).FindAllStringSubmatch(strings.Join(slices.Collect(maps.Values(said)), "\n"), -1) {
			n, err := strconv.Atoi(m[1])
			assert.NoError(t, err)
			calls += n
		}
		assert.Greater(t, calls, 500, "the calls of the suite go through the Guard")
	}
}
