package policy

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ServiceComb reads its texts as YAML 1.1, in which more words than in 1.2 are
// numbers, booleans and dates. What a text is there decides whether it is loaded,
// so it is decided here in the same way.
var (
	yaml11Int = regexp.MustCompile(`^(?:[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	// Base 60 with a fraction is left out: nobody writes it, and it is a time of day
	// to those who would.
	yaml11Float = regexp.MustCompile(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	yaml11Date  = regexp.MustCompile(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}.*)?$`)

	yaml11True  = []string{"yes", "true", "on"}
	yaml11False = []string{"no", "false", "off"}
)

// yaml11Tag returns the tag that a scalar has in YAML 1.1.
func yaml11Tag(n *yaml.Node) string {
	if n.Style&(yaml.TaggedStyle) != 0 {
		return n.ShortTag()
	}
	if n.Style != 0 && n.Style != yaml.FlowStyle {
		return "!!str" // quoted, or a block of text
	}
	switch s := n.Value; {
	case s == "", s == "~", isWord(s, "null"):
		return "!!null"
	case isWord(s, yaml11True...), isWord(s, yaml11False...):
		return "!!bool"
	case yaml11Int.MatchString(s):
		return "!!int"
	case yaml11Float.MatchString(s):
		return "!!float"
	case yaml11Date.MatchString(s):
		return "!!timestamp"
	}
	return "!!str"
}

// isWord reports whether s is one of the lower-case words, as YAML 1.1 writes such
// words: word, Word or WORD.
func isWord(s string, words ...string) bool {
	l := strings.ToLower(s)
	return slices.Contains(words, l) && (s == l || s == strings.ToUpper(s) || s == strings.ToUpper(l[:1])+l[1:])
}

func isNull11(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && yaml11Tag(n) == "!!null" }

// parseInt11 reads a whole number of 32 bits as YAML 1.1 writes it, whether it is in
// quotes or not. odd reports whether most readers would take it for another number.
func parseInt11(s string) (v int, odd, ok bool) {
	digits := strings.ReplaceAll(s, "_", "")
	sign := int64(1)
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		if digits[0] == '-' {
			sign = -1
		}
		digits = digits[1:]
	}
	base := 10
	switch {
	case strings.HasPrefix(digits, "0b"):
		base, digits = 2, digits[2:]
	case strings.HasPrefix(digits, "0x"):
		base, digits = 16, digits[2:]
	case len(digits) > 1 && digits[0] == '0':
		base, digits, odd = 8, digits[1:], true
	}
	if strings.Contains(digits, ":") {
		if base != 10 {
			return 0, false, false
		}
		odd = true
	}
	var sum int64
	for part := range strings.SplitSeq(digits, ":") {
		n, err := strconv.ParseUint(part, base, 32)
		if err != nil || sum > math.MaxInt32 {
			return 0, false, false
		}
		sum = 60*sum + int64(n)
	}
	sum *= sign
	return int(sum), odd, sum >= math.MinInt32 && sum <= math.MaxInt32
}

// parseNumber reads a decimal number, which may have an exponent. Unlike
// strconv.ParseFloat it knows no other writing, and it takes no memory to say so,
// since it is also held against what requests bring along.
func parseNumber(s string) (float64, bool) {
	s = strings.Trim(s, " \t")
	if !isDecimal(s) {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}

// isDecimal reports whether s is a decimal number that strconv.ParseFloat reads.
func isDecimal(s string) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	whole := digitsAtFront(s)
	s = s[whole:]
	fraction := 0
	if s != "" && s[0] == '.' {
		fraction = digitsAtFront(s[1:])
		s = s[1+fraction:]
	}
	if whole+fraction == 0 {
		return false
	}
	if s == "" {
		return true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return false
	}
	s = s[1:]
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	n := digitsAtFront(s)
	return n > 0 && n == len(s)
}

func digitsAtFront(s string) (n int) {
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// Durations are milliseconds, or what follows PT in a duration of ISO 8601.
var (
	durationMillis = regexp.MustCompile(`^[0-9]{1,10}$`)
	durationISO    = regexp.MustCompile(`^(?:([-+]?[0-9]+)[hH])?(?:([-+]?[0-9]+)[mM])?(?:([-+]?)([0-9]+)(?:[.,]([0-9]{0,9}))?[sS])?$`)
)

const wantDuration11 = "a number of milliseconds, such as 500, or a duration such as 30s, 5m or 1h30m"

// parseDuration11 reads a duration as ServiceComb writes it. What is longer than a
// year is cut to somewhat more than that.
func parseDuration11(s string) (time.Duration, bool) {
	if durationMillis.MatchString(s) {
		ms, _ := strconv.ParseInt(s, 10, 64)
		return time.Duration(ms) * time.Millisecond, true
	}
	m := durationISO.FindStringSubmatch(s)
	if m == nil || s == "" {
		return 0, false
	}
	var seconds int64
	for i, unit := range [...]int64{3600, 60, 1} {
		text := m[1+i]
		if i == 2 {
			text = m[3] + m[4]
		}
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, false
		}
		const enough = math.MaxInt32 // seconds, more than a year; so that sums stay in range
		seconds += unit * max(-enough, min(enough, n))
	}
	const limit = int64(maxDuration/time.Second) + 3600
	if seconds = max(-limit, min(limit, seconds)); seconds == -limit || seconds == limit {
		return time.Duration(seconds) * time.Second, true
	}
	nanos, _ := strconv.ParseInt((m[5] + "000000000")[:9], 10, 64)
	if m[3] == "-" {
		nanos = -nanos
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanos), true
}

// respell returns how ServiceComb would write what was probably meant by a
// duration that it refuses, or "".
func respell(s string) string {
	s = strings.NewReplacer(" ", "", "\t", "", "_", "").Replace(s)
	if rest, ok := strings.CutPrefix(strings.ToUpper(s), "P"); ok {
		s = strings.TrimPrefix(rest, "T")
	}
	if days, err := strconv.Atoi(strings.TrimRight(s, "dD")); err == nil && days > 0 && days <= 365 && digitsAtFront(s) == len(s)-1 {
		return strconv.Itoa(24*days) + "h"
	}
	d, err := time.ParseDuration(strings.ToLower(s))
	if err != nil || d < 0 {
		if _, ok := parseDuration11(s); ok {
			return s
		}
		return ""
	}
	if d%time.Second != 0 || d == 0 {
		return strconv.FormatInt(d.Milliseconds(), 10)
	}
	var b strings.Builder
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / u.unit; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}
