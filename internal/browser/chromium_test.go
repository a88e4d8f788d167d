package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const root = "../.."

const (
	// patience is how long a test waits for what should come soon, on a machine that is
	// busy with other things.
	patience = 30 * time.Second
	// poll is how often it looks, where nothing announces it.
	poll = 20 * time.Millisecond
)

// One browser serves all tests, each of which gets tabs and a profile of its own: a start
// takes as long as several tests.
var chromium struct {
	start sync.Once
	ctx   context.Context // of the browser
	stop  func()          // nil: not started
	err   error
}

// TestMain ends the browser. If it does not come to that, because a test timed out or
// panicked, the browser ends with this process: see TestChromiumEndsWithItsTest.
func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

// startChromium returns a context of the one browser. Without Chromium the test is
// skipped, or fails where it has to run. With WATERTIGHT_BROWSER=off it is skipped in any
// case.
func startChromium(t testing.TB) context.Context {
	t.Helper()
	if os.Getenv("WATERTIGHT_BROWSER") == "off" {
		t.Skip("WATERTIGHT_BROWSER is off")
	}
	bin, err := chromiumBinary()
	if err != nil {
		missing(t, fmt.Sprintf("there is no Chromium (%v): on Debian, apt-get install chromium fonts-dejavu-core; or name one by WATERTIGHT_CHROMIUM", err))
	}
	chromium.start.Do(func() { chromium.ctx, chromium.stop, chromium.err = launch(bin) })
	require.NoError(t, chromium.err)
	return chromium.ctx
}

// missing skips the test for want of something, or fails it where it has to run.
func missing(t testing.TB, what string) {
	t.Helper()
	for _, v := range []string{"CI", "WATERTIGHT_REQUIRE_BROWSER"} {
		if required, _ := strconv.ParseBool(os.Getenv(v)); required {
			require.FailNow(t, what)
		}
	}
	t.Skip(what)
}

// chromiumBinary returns where Chromium is.
func chromiumBinary() (string, error) {
	if name := os.Getenv("WATERTIGHT_CHROMIUM"); name != "" {
		return exec.LookPath(name)
	}
	var all []error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		bin, err := exec.LookPath(name)
		if err == nil {
			return bin, nil
		}
		all = append(all, err)
	}
	return "", errors.Join(all...)
}

// launch starts a browser. On Linux, the kernel kills it if this process ends in any way;
// everywhere it ends when the pipe does that it is driven by.
func launch(bin string) (context.Context, func(), error) {
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(bin),
		chromedp.DisableGPU,
		chromedp.NoSandbox, // needed by root, and what it is shown is our own
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true), // or screenshots would differ by machine
		chromedp.WindowSize(1280, 900),
	)
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stopTab := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	stop := func() {
		// The browser is asked to close first, so that its helpers go with it.
		_ = chromedp.Cancel(ctx)
		stopTab()
		stopAlloc()
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, nil, fmt.Errorf("Chromium does not start: %w", err)
	}
	return ctx, stop, nil
}

// axeSource returns the script of axe-core. Without it the test is skipped, or fails where
// it has to run.
func axeSource(t testing.TB) string {
	t.Helper()
	startChromium(t)
	name := os.Getenv("WATERTIGHT_AXE")
	if name == "" {
		name = filepath.Join(root, ".bin", "axe.min.js")
	}
	script, err := os.ReadFile(name)
	if err != nil {
		missing(t, fmt.Sprintf("there is no axe-core (%v): run internal/browser/get-axe at the root of the repository, once, or name its axe.min.js by WATERTIGHT_AXE", err))
	}
	return string(script)
}
