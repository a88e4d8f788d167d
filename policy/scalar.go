package policy

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The functions that read a scalar return what is wrong with it as the rest of a
// sentence that starts with the field's name, or "".

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe says what a node is.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode && len(n.Content) == 0:
		return "an empty mapping"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		return "an empty list"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	case n.ShortTag() == "!!str":
		return quote(n.Value)
	}
	return bare(n.Value)
}

func inQuotes(n *yaml.Node) string {
	return "is " + describe(n) + ", which is text; write it without the quotes: " + bare(n.Value)
}

func must(n *yaml.Node, want string) string { return "is " + describe(n) + "; it must be " + want }

// inFlow writes a scalar as a text inside of {}, in quotes unless it needs none there.
func inFlow(n *yaml.Node) string {
	if n.ShortTag() == "!!str" && plainText.MatchString(n.Value) {
		return n.Value
	}
	return quote(n.Value)
}

var plainText = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9/._-]{0,79}$`)

func readText(n *yaml.Node) (string, string) {
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		return "", must(n, "text")
	case n.ShortTag() != "!!str":
		// 1.10 would lose its zero if it were read as a number first.
		return "", "is " + describe(n) + ", which is not text; put it in quotes: " + quote(n.Value)
	}
	return n.Value, ""
}

// YAML writes numbers in ways that say something else to most readers: 010 is
// eight in it. Those are refused.
var (
	decimal = regexp.MustCompile(`^[+-]?(0|[1-9][0-9]*)$`)
	octal   = regexp.MustCompile(`^[+-]?0[0-9]`)
)

func readCount(n *yaml.Node) (int, string) {
	switch {
	case n.Kind != yaml.ScalarNode || !decimal.MatchString(n.Value):
		return 0, must(n, "a whole number")
	// Without quotes it is a number, whatever YAML takes one with too many digits for.
	case n.ShortTag() == "!!str" && n.Style != 0:
		return 0, inQuotes(n)
	}
	v, _ := strconv.Atoi(n.Value) // the nearest int, if it is out of range for one
	return v, ""
}

func readVersion(n *yaml.Node) (int, string) {
	if v, problem := readCount(n); problem != "" || v != 1 {
		return 0, must(n, "1, the only one that this version of watertight reads")
	}
	return 1, ""
}

// The ranges of numbers that are no counts, as messages say them.
const (
	wantRate   = "a percentage: more than 0, at most 100"
	wantFactor = "a number: at least 1.1, at most 100"
	wantShare  = "a share: at least 0, less than 1"
)

func readRate(n *yaml.Node) (float64, string) {
	if n.Kind == yaml.ScalarNode && strings.HasSuffix(n.Value, "%") {
		return 0, "is " + describe(n) + "; write it without the percent sign: " + bare(strings.TrimSpace(strings.TrimSuffix(n.Value, "%")))
	}
	return readNumber(n, wantRate)
}

func readFactor(n *yaml.Node) (float64, string) { return readNumber(n, wantFactor) }

func readShare(n *yaml.Node) (float64, string) { return readNumber(n, wantShare) }

func readNumber(n *yaml.Node, want string) (float64, string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && isDecimal(n.Value) {
		return 0, inQuotes(n)
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
		return 0, must(n, want)
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || octal.MatchString(n.Value) {
		return 0, must(n, want) // also for .inf and .nan, which Go writes without the dot
	}
	return v, ""
}

func readDuration(n *yaml.Node) (time.Duration, string) {
	const want = "a duration such as 800ms, 30s or 1h30m"
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return 0, must(n, want)
	}
	v, err := time.ParseDuration(n.Value)
	if err == nil {
		return v, ""
	}
	if joined := strings.ReplaceAll(n.Value, " ", ""); joined != n.Value {
		if _, err := time.ParseDuration(joined); err == nil {
			return 0, "is " + describe(n) + "; write it without the space: " + bare(joined)
		}
	}
	if number, ok := parseNumber(n.Value); ok && number <= maxDuration.Seconds()*1000 {
		// Without an exponent, which a duration must not have.
		text := strconv.FormatFloat(number, 'f', -1, 64)
		return 0, "is " + describe(n) + ", which has no unit; write " + text + "ms or " + text + "s"
	}
	return 0, must(n, want)
}

func readBool(n *yaml.Node) (bool, string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
		switch strings.ToLower(n.Value) {
		case "true":
			return true, ""
		case "false":
			return false, ""
		}
	}
	return false, must(n, "true or false")
}

func readSide(n *yaml.Node) (Side, string) {
	for i, name := range sideNames {
		if n.Kind == yaml.ScalarNode && n.Value == name {
			return Side(i), ""
		}
	}
	return 0, must(n, "server, client or both") + didYouMean(n, sideNames[:])
}

func readPer(n *yaml.Node) (perValue, string) {
	if n.Kind != yaml.ScalarNode {
		return perValue{}, must(n, wantPer)
	}
	if name, ok := strings.CutPrefix(n.Value, perHeaderPrefix); ok {
		return perValue{PerHeader, name}, ""
	}
	for _, per := range [...]Per{PerPolicy, PerRoute, PerHost} {
		if n.Value == perNames[per] {
			return perValue{per: per}, ""
		}
	}
	return perValue{}, must(n, wantPer) + didYouMean(n, perNames[PerPolicy:PerHeader])
}

const (
	perHeaderPrefix = "header:"
	wantPer         = "policy, route, host or header:NAME"
)

func readMode(n *yaml.Node) (Mode, string) {
	for i, name := range modeNames {
		if n.Kind == yaml.ScalarNode && n.Value == name {
			return Mode(i), ""
		}
	}
	return 0, must(n, "enforce or observe") + didYouMean(n, modeNames[:])
}

// didYouMean suggests a word, if one is near.
func didYouMean(n *yaml.Node, words []string) string {
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		if near := nearest(n.Value, words); near != "" {
			return "; did you mean " + near + "?"
		}
	}
	return ""
}

func readSettle(n *yaml.Node) (Settle, string) {
	for i, name := range settleNames {
		if n.Kind == yaml.ScalarNode && n.Value == name {
			return Settle(i), ""
		}
	}
	return 0, must(n, "headers or body") + didYouMean(n, settleNames[:])
}

func readStatusRange(n *yaml.Node) (StatusRange, string) {
	const want = "a status such as 503, or a range such as 500-599"
	if n.Kind != yaml.ScalarNode {
		return StatusRange{}, must(n, want)
	}
	from, to, isRange := strings.Cut(n.Value, "-")
	if !isRange {
		to = from
	}
	var r StatusRange
	var errFrom, errTo error
	r.From, errFrom = strconv.Atoi(strings.TrimSpace(from))
	r.To, errTo = strconv.Atoi(strings.TrimSpace(to))
	if errFrom != nil || errTo != nil {
		return StatusRange{}, must(n, want)
	}
	return r, ""
}
