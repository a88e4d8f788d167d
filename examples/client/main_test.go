package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/examples/internal/app"
)

// The demonstration as a newcomer runs it, but shorter. What depends on how busy
// this machine is, the P99s, is told by the program and not asserted here.
func TestDemonstration(t *testing.T) {
	var out, errs bytes.Buffer
	run(t.Context(), []string{"-duration", "5s"}, &out, &errs)
	require.Empty(t, errs.String())
	text := out.String()
	for _, want := range []string{
		`the shaky upstream turns slow`, `turns failing`, `turns healthy`,
		`delay +/delay/10 +\d+ `, `steady +/upstream/steady/ +\d+ `,
		`server +streams +/stream/\{chunks\} +\d+ +\d+ +[1-9]\d* +[1-9]\d* `, // some waited, some found it full
		`client +upstreams +http://127\.0\.0\.1:\d+ \(shaky\) +\d+ `,
		`\(shaky\)  closed -> open `, `open -> half_open `, `half_open -> closed `,
		`A call that waited\n(?s:.*?)bulkhead\.wait .*result=granted`,
		`A call that was turned away\n(?s:.*?)bulkhead\.reject .*ERROR.*reason=full`,
		`The call that tripped the breaker\n(?s:.*?)breaker\.trip `,
		`ok +/delay/10: all of`,
		`ok +the shaky upstream tripped its breaker`, `ok +and recovered`, `ok +nothing is in flight at the end`,
	} {
		assert.Regexp(t, regexp.MustCompile(want), text)
	}
}

func TestTarget(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer up.Close()
	a, err := app.Start(t.Context(), app.Config{Upstreams: map[string]string{"up": up.URL}, Drain: 5 * time.Second})
	require.NoError(t, err)
	defer func() { assert.NoError(t, a.Shutdown(context.Background())) }()
	resp, err := http.Get(a.URL() + "/delay/0")
	require.NoError(t, err)
	resp.Body.Close()

	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"-target", a.URL(), "-upstream", "up", "-duration", "5s"}, &out, &errs)
	assert.Zero(t, status, "%s%s", &out, &errs)
	assert.Regexp(t, `up +/upstream/up/ +\d+ .*200: \d+`, out.String())
	assert.Regexp(t, `ok +nothing is in flight at the end`, out.String())
	for _, c := range a.Guard().Snapshot().Compartments {
		if c.Key == "/delay/{ms}" {
			assert.Regexp(t, regexp.MustCompile(`server +routes +/delay/\{ms\} +`+strconv.FormatUint(c.Granted-1, 10)+` `), out.String(), "what came before the load is not its own")
		}
	}
}

func TestWhatCannotStart(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"unknown flag":            {[]string{"-x"}, 2, "flag provided but not defined"},
		"argument":                {[]string{"x"}, 2, `unexpected argument "x"`},
		"too short":               {[]string{"-duration", "1s"}, 2, "want at least 5s"},
		"not a URL":               {[]string{"-target", "localhost:80"}, 2, "want a URL such as"},
		"not a collector":         {[]string{"-otlp", "x"}, 2, "want a URL such as"},
		"upstream without target": {[]string{"-upstream", "a"}, 2, "-target"},
		"too short a soak":        {[]string{"-soak", "1s"}, 2, "-soak 1s: want at least 5s"},
		"no soak":                 {[]string{"-soak", "-5s"}, 2, "want at least 5s"},
		"a page of nothing":       {[]string{"-admin", "127.0.0.1:0"}, 2, "-admin shows the live page of -soak"},
		"a page that cannot be":   {[]string{"-soak", "5s", "-admin", "127.0.0.1:99999"}, 1, "99999"},
		"a soak of somebody else": {[]string{"-soak", "5s", "-target", "http://127.0.0.1:1"}, 2, "takes no other flag but -admin"},
		"help":                    {[]string{"-h"}, 0, "-duration"},
		"nobody there":            {[]string{"-target", "http://127.0.0.1:1"}, 1, "is an example server running at http://127.0.0.1:1?"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			assert.Equal(t, test.status, run(t.Context(), test.args, &out, &errs))
			assert.Contains(t, errs.String(), test.says)
		})
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	var out, errs bytes.Buffer
	assert.Equal(t, 1, run(ctx, nil, &out, &errs))
	assert.Contains(t, errs.String(), "interrupted after 1")
}

// Each promise can be broken, and then says so.
func TestVerdict(t *testing.T) {
	const base, quick, slow = 40 * time.Millisecond, 45 * time.Millisecond, 121 * time.Millisecond
	inside := watertight.Snapshot{Compartments: []watertight.CompartmentSnapshot{{InFlight: 1}}}
	for name, test := range map[string]struct {
		before, during time.Duration
		status         int
		err            error
		final          watertight.Snapshot
		held           bool
		broken         string
	}{
		"all held":         {base, quick, 200, nil, watertight.Snapshot{}, true, ""},
		"within 3 times":   {base, 3 * base, 200, nil, watertight.Snapshot{}, true, ""},
		"slower":           {base, slow, 200, nil, watertight.Snapshot{}, false, "stayed fast"},
		"not all answered": {base, quick, 503, nil, watertight.Snapshot{}, false, "were answered 200"},
		"no answer":        {base, quick, 0, errors.New("refused"), watertight.Snapshot{}, false, "were answered 200"},
		"still inside":     {base, quick, 200, nil, inside, false, "in flight"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			f := &flow{path: "/fast", fast: true, results: newResults()}
			f.results.add(before, 200, nil, test.before)
			f.results.add(during, test.status, test.err, test.during)
			d := &demo{out: &out, flows: []*flow{f}, fault: &fault{}, server: &target{}, guard: watertight.New(nil)}
			assert.Equal(t, test.held, d.verdict(test.final))
			assert.Equal(t, !test.held, strings.Contains(out.String(), "BROKEN"))
			assert.Contains(t, out.String(), test.broken)
		})
	}
}

func TestQuantile(t *testing.T) {
	var ds []time.Duration
	for i := 100; i > 0; i-- {
		ds = append(ds, time.Duration(i))
	}
	assert.EqualValues(t, 50, quantile(ds, 0.50))
	assert.EqualValues(t, 99, quantile(ds, 0.99))
	assert.EqualValues(t, 100, quantile(ds, 1))
	assert.EqualValues(t, 7, quantile([]time.Duration{7}, 0.99))
	assert.Zero(t, quantile(nil, 0.5))
}

// The soak as CI runs it, but shorter: it has an opinion of its own.
func TestSoak(t *testing.T) {
	var out, errs bytes.Buffer
	shown := &watching{w: &out, events: make(chan int, 1)}
	code := run(t.Context(), []string{"-soak", "5s", "-admin", "127.0.0.1:0"}, shown, &errs)
	require.Empty(t, errs.String(), out.String())
	assert.Zero(t, code)
	assert.Greater(t, <-shown.events, 1, "whoever watches it sees it as it is, and what changes")
	assert.Contains(t, out.String(), "everything balances, nothing is left")
	assert.Regexp(t, `the limits changed [1-9]\d* times, an upstream its mood [1-9]\d* times, the books were closed [2-9]\d* times`, out.String())
}

// A watching writer opens the live page that what is written tells of, and counts the
// events until that ends.
type watching struct {
	w      io.Writer
	events chan int
}

var pageURL = regexp.MustCompile(`to watch: (http://\S+)`)

func (w *watching) Write(p []byte) (int, error) {
	if found := pageURL.FindSubmatch(p); found != nil {
		go w.watch(string(found[1]))
	}
	return w.w.Write(p)
}

func (w *watching) watch(page string) {
	n := 0
	defer func() { w.events <- n }()
	resp, err := http.Get(page + "events")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(line, "event: ") {
			n++
		}
	}
}
