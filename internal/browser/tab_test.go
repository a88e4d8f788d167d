package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A view is what somebody looks at the page with.
type view struct {
	width, height int64
	dark          bool // prefers dark colours
	still         bool // prefers reduced motion
}

var (
	// Still, but where motion matters: sixty pictures a second, drawn without a GPU, would
	// take the processor from the tests.
	desk      = view{width: 1280, height: 900, still: true}
	deskDark  = view{width: 1280, height: 900, still: true, dark: true}
	phone     = view{width: 390, height: 844, still: true}
	phoneDark = view{width: 390, height: 844, still: true, dark: true}
)

// A tab shows the page. Its end fails the test if anything went wrong in it that the test
// did not forgive: an error or a warning on the console, an exception, a breach of the
// content security policy, a request that leaves the page's own prefix.
type tab struct {
	testing.TB
	*heard
	ctx   context.Context
	close func() // before the end of the test
}

// heard is what a tab has told of.
type heard struct {
	home string // what all URLs have to begin with

	mu       sync.Mutex // guards the fields below
	wrong    []string
	messages int // that came over server-sent events
}

// open opens a tab and loads a page, whose URL everything that it asks for has to begin with.
func open(t testing.TB, home string, v view) *tab {
	t.Helper()
	tb := blank(t, home, v)
	tb.load(home)
	return tb
}

// blank opens a tab that shows nothing yet.
func blank(t testing.TB, home string, v view) *tab {
	t.Helper()
	tb := &tab{TB: t, heard: &heard{home: home}}
	tb.ctx, tb.close = chromedp.NewContext(startChromium(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(tb.hear))
	t.Cleanup(func() {
		if t.Failed() {
			tb.keep("failed.png")
		}
		tb.close()
		for _, w := range tb.wrongs() {
			t.Errorf("in the browser: %s", w)
		}
	})
	tb.do(chromedp.Func(func(context.Context, *chromedp.Target) error { return nil })) // starts it: no time-out may end it
	tb.see(v)
	// A tab in the background has to work like the one in front.
	require.NoError(t, call(tb, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
	return tb
}

// in returns the tab for use in a subtest.
func (tb *tab) in(t testing.TB) *tab { return &tab{TB: t, heard: tb.heard, ctx: tb.ctx, close: tb.close} }

// see changes what the page is looked at with.
func (tb *tab) see(v view) {
	tb.Helper()
	choose := func(on bool, yes, no string) string {
		if on {
			return yes
		}
		return no
	}
	require.NoError(tb, call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: choose(v.dark, "dark", "light")},
		{Name: "prefers-reduced-motion", Value: choose(v.still, "reduce", "no-preference")},
	}}))
	var opts []chromedp.EmulateViewportOption
	if v.width < 600 {
		opts = append(opts, chromedp.EmulateMobile)
	}
	tb.do(chromedp.EmulateViewport(v.width, v.height, opts...))
}

// hear is told of everything that happens in the tab.
func (h *heard) hear(ev any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	blame := func(format string, args ...any) {
		// What goes wrong with each update says nothing new the second time.
		if w := fmt.Sprintf(format, args...); !slices.Contains(h.wrong, w) {
			h.wrong = append(h.wrong, w)
		}
	}
	switch ev := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		switch ev.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			var args []string
			for _, a := range ev.Args {
				args = append(args, string(a.Value)+a.Description)
			}
			blame("console.%s: %s", ev.Type, strings.Join(args, " "))
		}
	case *runtime.EventExceptionThrown:
		d := ev.ExceptionDetails
		what := d.Text
		if d.Exception != nil {
			what += " " + d.Exception.Description
		}
		blame("exception: %s", what)
	case *log.EventEntryAdded:
		if e := ev.Entry; e.Level == log.EntryLevelError || e.Level == log.EntryLevelWarning {
			blame("%s %s: %s %s", e.Source, e.Level, e.Text, e.URL)
		}
	case *network.EventRequestWillBeSent:
		if u := ev.Request.URL; !strings.HasPrefix(u, h.home) && !strings.HasPrefix(u, "data:") {
			blame("request for %s", u)
		}
	case *network.EventEventSourceMessageReceived:
		h.messages++
	}
}

// wrongs returns what went wrong so far, and forgets it.
func (h *heard) wrongs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.wrong
	h.wrong = nil
	return w
}

// forgive forgets what went wrong so far, provided that it contains the given text.
func (h *heard) forgive(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.wrong[:0]
	for _, w := range h.wrong {
		if !strings.Contains(w, text) {
			kept = append(kept, w)
		}
	}
	h.wrong = kept
}

// received returns how many server-sent events the page got.
func (h *heard) received() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.messages
}

func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	require.NoError(tb, chromedp.Do(tb.ctx, steps...))
}

// load goes to a URL, or reloads the page that is there already.
func (tb *tab) load(url string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	require.NoError(tb, chromedp.Do(ctx, chromedp.Navigate(url)))
}

// call sends a command of the browser's protocol whose result does not matter.
func call[P, R any](tb *tab, cmd cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(tb.ctx, cmd, params)
	return err
}

// eval evaluates an expression in the page; a promise is waited for.
func eval[T any](tb *tab, expression string) T {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(tb, err, "%s", expression)
	return v
}

// until waits until an expression is true. One that throws is not true yet. (What
// chromedp has for this makes functions from text, which the page's content security
// policy forbids.)
func (tb *tab) until(expression string) {
	tb.Helper()
	var last string
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithDeadline(tb.ctx, deadline)
		v, err := chromedp.Run(ctx, chromedp.Evaluate[json.RawMessage]("Boolean("+expression+")"))
		cancel()
		switch {
		case err != nil:
			last = err.Error()
		case string(v) == "true":
			return
		default:
			last = "false"
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(poll)
	}
	require.FailNow(tb, "it does not become true: "+expression, "last: %s\nvisible: %s\nthe page says:\n%s", last, tb.sees("document.visibilityState + ' ' + document.hasFocus()"), tb.sees("document.body.innerText"))
}

// click clicks with the mouse what the CSS selector finds, as soon as it can be seen.
func (tb *tab) click(selector string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	require.NoError(tb, chromedp.Do(ctx, chromedp.ScrollIntoView(chromedp.CSS(selector))), "%s", selector)
	top := eval[string](tb, `((e) => {
		const box = e.getBoundingClientRect();
		const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
		return top === e || e.contains(top) ? '' : (top || document.body).outerHTML.slice(0, 200);
	})(document.querySelector(`+quote(selector)+`))`)
	require.Empty(tb, top, "this is in front of %s", selector)
	require.NoError(tb, chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector))), "%s", selector)
}

// quote makes a JavaScript string of s.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string has that
	}
	return string(text)
}

// wait waits until something is so that the page itself does not know.
func (tb *tab) wait(what string, is func() bool) {
	tb.Helper()
	require.Eventually(tb, is, patience, poll, what)
}

// reload loads the page anew, with the fragment that it has by now.
func reload() chromedp.Action[chromedp.Void] { return chromedp.Reload() }

// sees returns the text that an expression gives, or what is wrong with that.
func (tb *tab) sees(expression string) string {
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		return err.Error()
	}
	return s
}

// press presses keys, one after the other. (What chromedp has for this types the character
// even if the page has taken the key for itself.)
func (tb *tab) press(keys ...string) {
	tb.Helper()
	for _, k := range keys {
		events := kb.Encode([]rune(k)[0])
		down, up := events[0], events[len(events)-1]
		if len(events) > 2 {
			down.Type, down.Text, down.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, events[1].Text, events[1].UnmodifiedText
		}
		require.NoError(tb, call(tb, input.DispatchKeyEvent, *down))
		require.NoError(tb, call(tb, input.DispatchKeyEvent, *up))
	}
}

const (
	keyTab    = kb.Tab
	keyEnter  = kb.Enter
	keySpace  = " "
	keyEscape = kb.Escape
)

// picture takes a picture of all of the page, as a PNG.
func (tb *tab) picture() ([]byte, error) {
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.FullScreenshot(100))
}

// keep keeps a picture of the page among the artifacts of the test: go test -artifacts
// tells where that is.
func (tb *tab) keep(name string) {
	tb.Helper()
	png, err := tb.picture()
	if assert.NoError(tb, err) {
		assert.NoError(tb, os.WriteFile(filepath.Join(tb.ArtifactDir(), name), png, 0o600))
	}
}
