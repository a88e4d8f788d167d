package transport_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/breaker"
	"github.com/watertight-go/watertight/transport"
)

const tenYears = 10 * 365 * 24 * time.Hour

func TestRetryAfter(t *testing.T) {
	for _, test := range []struct {
		status      int
		value, date string
		want        time.Duration
	}{
		{503, "120", "", 2 * time.Minute},
		{429, "1", "", time.Second},
		{503, "", "", 0},
		{503, "0", "", 0},
		{503, "000120", "", 2 * time.Minute},
		{500, "120", "", 0},
		{200, "120", "", 0},
		{301, "120", "", 0},
		{503, "-1", "", 0},
		{503, "+1", "", 0},
		{503, "1.5", "", 0},
		{503, "1s", "", 0},
		{503, "1, 2", "", 0},
		{503, "soon", "", 0},
		{503, "315360000", "", tenYears},
		{503, "315360001", "", tenYears},
		{503, "9223372037", "", tenYears},           // seconds that no Duration has
		{503, "18446744073709551616", "", tenYears}, // no uint64 has
		{503, strings.Repeat("9", 1000), "", tenYears},
		// A bubble begins at midnight UTC of 2000-01-01, a Saturday.
		{503, "Sat, 01 Jan 2000 00:01:00 GMT", "", time.Minute},
		{429, "Saturday, 01-Jan-00 00:01:00 GMT", "", time.Minute},
		{503, "Sat Jan  1 00:01:00 2000", "", time.Minute},
		{503, "Sat, 01 Jan 2000 00:00:00 GMT", "", 0},
		{503, "Fri, 31 Dec 1999 23:59:00 GMT", "", 0},
		{503, "Sun, 01 Jan 2300 00:00:00 GMT", "", tenYears},
		{503, "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", tenYears},
		{503, "Sat, 32 Jan 2000 00:01:00 GMT", "", 0},
		// By the upstream's clock, not by ours.
		{503, "Tue, 01 Jan 2030 00:00:30 GMT", "Tue, 01 Jan 2030 00:00:00 GMT", 30 * time.Second},
		{503, "Fri, 01 Jan 1999 00:00:30 GMT", "Fri, 01 Jan 1999 00:00:00 GMT", 30 * time.Second},
		{503, "Sat, 01 Jan 2000 00:01:00 GMT", "yesterday", time.Minute},
		{503, "60", "Tue, 01 Jan 2030 00:00:00 GMT", time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			resp := &http.Response{StatusCode: test.status, Header: http.Header{}}
			for name, value := range map[string]string{"Retry-After": test.value, "Date": test.date} {
				if value != "" {
					resp.Header.Set(name, value)
				}
			}
			assert.Equal(t, test.want, transport.RetryAfter(resp), "%d %.40q %q", test.status, test.value, test.date)
		})
	}
	assert.Zero(t, transport.RetryAfter(&http.Response{StatusCode: 503}), "no header at all")
}

// Whatever an upstream writes, what is read from it is in range, and digits mean
// what they say.
func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("Sat, 01 Jan 2000 00:01:00 GMT", "Sat, 01 Jan 2000 00:00:00 GMT")
	f.Add("99999999999999999999", "x")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		got := transport.RetryAfter(&http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {value}, "Date": {date}}})
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, tenYears)
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && n <= 315_360_000 {
			require.Equal(t, time.Duration(n)*time.Second, got)
		} else if err != nil && strings.Trim(value, "0123456789") != "" {
			at, err := http.ParseTime(value)
			from, dateErr := http.ParseTime(date)
			switch {
			case err != nil:
				require.Zero(t, got)
			case dateErr == nil:
				require.Equal(t, min(max(0, at.Sub(from)), tenYears), got)
			}
		}
	})
}

// What an upstream asks for is heeded when the breaker trips, up to the cap of its
// policy; also if the answer that asked was not what tripped it, and no failure.
func TestAnUpstreamMaySayWhenToComeBack(t *testing.T) {
	for _, test := range []struct {
		name    string
		breaker string
		asks    int // status
		value   string
		trips   int // status
		want    time.Duration
	}{
		{"seconds", "openFor: {retryAfter: 2m}", 503, "60", 0, time.Minute},
		{"a date", "openFor: {retryAfter: 2m}", 503, "Sat, 01 Jan 2000 00:01:00 GMT", 0, time.Minute},
		{"more than the cap", "openFor: {retryAfter: 2m}", 503, "3600", 0, 2 * time.Minute},
		{"less than openFor", "openFor: {retryAfter: 2m}", 503, "3", 0, 3 * time.Second},
		{"429, which is a failure here", "openFor: {retryAfter: 2m}, failureStatus: [429]", 429, "60", 0, time.Minute},
		{"429, which is none", "openFor: {retryAfter: 2m}", 429, "60", 500, time.Minute},
		{"500", "openFor: {retryAfter: 2m}", 500, "60", 0, 30 * time.Second},
		{"nothing", "openFor: {retryAfter: 2m}", 503, "", 0, 30 * time.Second},
		{"nonsense", "openFor: {retryAfter: 2m}", 503, "soon", 0, 30 * time.Second},
		{"not heeded unless the policy says so", "openFor: 30s", 503, "60", 0, 30 * time.Second},
		{"with settle: body", "openFor: {retryAfter: 2m}, settle: body", 503, "60", 0, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, `  - {name: p, breaker: {failureRate: 1, minCalls: `+map[bool]string{true: "1", false: "2"}[test.trips == 0]+`, `+test.breaker+`}}`)
				asks := base(func(r *http.Request) (*http.Response, error) {
					resp := answer(r, test.asks, text("busy"))
					resp.Header.Set("Retry-After", test.value)
					return resp, nil
				})
				resp := open(t, transport.New(asks, g), get(t, "http://up/"))
				assert.Equal(t, test.value, resp.Header.Get("Retry-After"), "as it came")
				require.NoError(t, resp.Body.Close())
				if test.trips != 0 {
					open(t, transport.New(always(test.trips), g), get(t, "http://up/"))
				}
				_, err := transport.New(always(200), g).RoundTrip(get(t, "http://up/"))
				require.ErrorIs(t, err, breaker.ErrOpen)
				b := only(t, g).Breaker
				assert.Equal(t, test.want.Milliseconds(), b.OpenRemainingMs)
			})
		})
	}
}
