package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/watertight-go/watertight/policy"
)

const aboutExplain = `Says which policies decide about a request: which one has its bulkhead and which its breaker,
by which condition, why the earlier ones do not, the key of the compartment, and the
settings with where each is written. PATH is a path with its query, or a URL.

With -json it prints {"bulkhead": B, "breaker": B}, where B is
{"policy": NAME, "key": KEY, "settings": {...}}, with settings as a policy file writes
them, or null if there is none. It exits with 0, with 1 if the file has errors, and with
2 if it cannot be read.
`

// A part is what -json prints of a bulkhead or a breaker.
type part struct {
	Policy   string         `json:"policy"`
	Key      string         `json:"key"`
	Settings map[string]any `json:"settings"`
}

func (p *program) explain(args []string) int {
	var r reading
	fs := p.flags("explain", "FILE [-json] [-side server|client] [-X METHOD] [-H 'NAME: VALUE']... [-host HOST] [-route ROUTE] PATH", aboutExplain)
	r.flags(fs)
	q := newQuestion(fs)
	asJSON := fs.Bool("json", false, "print JSON")
	others, status, ok := p.parse(fs, args)
	if !ok {
		return status
	}
	if len(others) != 2 {
		return p.misused("explain needs a file and a path, as in: watertight explain policies.yaml /reports/7")
	}
	request, err := q.request(others[1])
	if err != nil {
		return p.misused("%v", err)
	}
	name, data, err := p.read(others[0])
	if err != nil {
		return p.misused("%v", err)
	}
	set, err := policy.Parse(name, data, r.options()...)
	if err != nil {
		fmt.Fprintln(p.err, err)
		return exitFaulty
	}

	a := &answer{program: p, file: name, set: set, request: request, Explanation: set.Explain(request)}
	if *asJSON {
		return p.print(map[string]*part{
			"bulkhead": a.part(a.Bulkhead, a.BulkheadPattern, bulkheadOf),
			"breaker":  a.part(a.Breaker, a.BreakerPattern, breakerOf),
		}, exitFine)
	}
	a.write()
	return exitFine
}

// A question is the request that the flags describe.
type question struct {
	side, method, host, route string
	headers                   http.Header
	hasRoute                  bool
}

func newQuestion(fs *flag.FlagSet) *question {
	q := &question{headers: http.Header{}}
	fs.StringVar(&q.side, "side", "server", "the `SIDE` of the wire: server or client")
	fs.StringVar(&q.method, "X", http.MethodGet, "the `METHOD`")
	fs.StringVar(&q.host, "host", "", "the `HOST` with its port, if written: the Host header on a server, the URL's on a client")
	fs.Func("route", "the pattern of the `ROUTE`, as a server's router reports it; empty: no route matches", func(s string) error {
		q.route, q.hasRoute = s, true
		return nil
	})
	fs.Func("H", "a header, as `'NAME: VALUE'`; may come several times", func(s string) error {
		name, value, ok := strings.Cut(s, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return errors.New("it must be NAME: VALUE")
		}
		q.headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	return q
}

// request builds the request for a path or a URL.
func (q *question) request(target string) (*policy.Request, error) {
	r := &policy.Request{
		Method:     q.method,
		Host:       q.host,
		Header:     q.headers,
		Route:      q.route,
		RouteKnown: q.hasRoute,
	}
	switch q.side {
	case "server":
		r.Side = policy.Server
	case "client":
		r.Side = policy.Client
		if q.hasRoute {
			return nil, errors.New("a client has no routes; leave -route out, or write -side server")
		}
	default:
		return nil, fmt.Errorf("-side is %q; it must be server or client", q.side)
	}
	if _, err := http.NewRequest(q.method, "/", nil); err != nil || q.method == "" {
		return nil, fmt.Errorf("-X is %q, which is not a method; write one such as GET", q.method)
	}
	if host := q.headers.Get("Host"); host != "" { // net/http keeps it apart
		q.headers.Del("Host")
		if r.Host == "" {
			r.Host = host
		}
	}
	if target == "*" {
		r.EscapedPath, r.Path = "*", "*"
		return r, nil
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("%q is no path: %w", target, errors.Unwrap(err))
	}
	if u.Host == "" && !strings.HasPrefix(target, "/") {
		return nil, fmt.Errorf("%q is no path; it must start with /, or be a URL", target)
	}
	if u.Host != "" {
		r.Scheme = u.Scheme
		if r.Host == "" {
			r.Host = u.Host
		}
	}
	r.EscapedPath, r.Path, r.RawQuery = u.EscapedPath(), u.Path, u.RawQuery
	return r, nil
}

// An answer explains one decision.
type answer struct {
	*program
	file    string
	set     *policy.Set
	request *policy.Request
	policy.Explanation
}

func bulkheadOf(r *policy.Rule) []setting {
	if r.Bulkhead == nil {
		return nil
	}
	return bulkheadSettings(r.Bulkhead)
}

func breakerOf(r *policy.Rule) []setting {
	if r.Breaker == nil {
		return nil
	}
	return breakerSettings(r.Breaker)
}

func (a *answer) part(r *policy.Rule, pattern string, settings func(*policy.Rule) []setting) *part {
	if r == nil {
		return nil
	}
	return &part{Policy: r.Name, Key: a.key(r, pattern), Settings: nested(settings(r))}
}

func (a *answer) key(r *policy.Rule, pattern string) string {
	return string(r.AppendKey(nil, a.request, pattern))
}

func (a *answer) write() {
	if a.Exempt != nil {
		fmt.Fprintf(a.out, "exempt by %s\n", a.name(a.Exempt))
		a.matched(a.Exempt)
	} else {
		a.writePart("bulkhead", a.Bulkhead, a.BulkheadPattern, bulkheadOf, policy.ReasonFull, policy.ReasonWaitTimeout)
		a.writePart("breaker", a.Breaker, a.BreakerPattern, breakerOf, policy.ReasonOpen)
	}
	a.writeOthers()
	a.writeUnasked()
}

// writeUnasked says, where nothing was found, what may have been left out of the question.
func (a *answer) writeUnasked() {
	if a.Bulkhead != nil || a.Breaker != nil || a.Exempt != nil {
		return
	}
	other := policy.Client
	if a.request.Side == policy.Client {
		other = policy.Server
	}
	unasked := 0
	for _, r := range a.set.Rules() {
		if r.Side == other {
			unasked++
		}
	}
	if unasked > 0 {
		fmt.Fprintf(a.out, "policies for the %v side alone were not asked (%d): write -side %[1]v\n", other, unasked)
	}
	if a.request.Side == policy.Client && a.request.Host == "" {
		fmt.Fprintln(a.out, "no host is known: write -host HOST, or a URL for the path")
	}
}

// name says which policy it is, and where.
func (a *answer) name(r *policy.Rule) string {
	return fmt.Sprintf("policy %q (%s)", r.Name, where(a.set, r, a.file, ""))
}

// matched says by what a policy matches.
func (a *answer) matched(r *policy.Rule) {
	for _, asked := range a.Asked {
		if asked.Rule == r {
			fmt.Fprintf(a.out, "  matches %s\n", asked.Matched)
		}
	}
}

func (a *answer) writePart(name string, r *policy.Rule, pattern string, settings func(*policy.Rule) []setting, reasons ...policy.Reason) {
	if r == nil {
		fmt.Fprintf(a.out, "%s: none\n", name)
		return
	}
	fmt.Fprintf(a.out, "%s: %s\n", name, a.name(r))
	a.matched(r)
	fmt.Fprintf(a.out, "  key %q, per %v\n", a.key(r, pattern), r.PerOn(a.request.Side))

	var keys, texts, places []string
	note := func(s setting, at ...string) {
		keys, texts, places = append(keys, s.key), append(texts, s.text()), append(places, where(a.set, r, a.file, at...))
	}
	for _, s := range settings(r) {
		note(s, keysOf(name, s.key)...)
	}
	for _, s := range rejections(r, reasons...) {
		note(s, s.key)
	}
	for i := range keys {
		fmt.Fprintf(a.out, "  %-*s  %-*s  %s\n", widest(keys), keys[i], widest(texts), texts[i], places[i])
	}
}

// writeOthers says of the policies that were asked and did not decide why they did not.
func (a *answer) writeOthers() {
	for _, asked := range a.Asked {
		r := asked.Rule
		if r == a.Bulkhead || r == a.Breaker || r == a.Exempt {
			continue
		}
		if asked.Matched != "" {
			fmt.Fprintf(a.out, "not %s: it matches %s, but %s\n", a.name(r), asked.Matched, a.needless(r))
			continue
		}
		fmt.Fprintf(a.out, "not %s:\n", a.name(r))
		for _, missed := range asked.Missed {
			fmt.Fprintf(a.out, "  %s\n", missed)
		}
	}
}

// needless says why a policy that matches decides nothing.
func (a *answer) needless(r *policy.Rule) string {
	switch {
	case r.Exempt:
		return "the request has a bulkhead or a breaker already, so it only ends the search"
	case r.Bulkhead != nil:
		return "there is a bulkhead already"
	}
	return "there is a breaker already"
}
