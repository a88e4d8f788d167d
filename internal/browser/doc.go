// Package browser has only tests: that the live page does in a real browser what it is
// there for. A Guard in every state that it knows, with real calls through it, is served
// by [dashboard.Handler], and headless Chromium looks at it, with a keyboard, with a
// phone's width and with the eyes of axe-core.
//
// It is a module of its own, so that nobody who uses watertight has to download what
// drives a browser. Without Chromium its tests are skipped; see CONTRIBUTING.md.
package browser
