package app

import (
	"context"
	"errors"
	"time"
)

// ErrCutOff reports that calls were still inside when the time to drain was up.
var ErrCutOff = errors.New("calls were cut off")

const (
	// lastBytes is how long responses may take to reach their clients after
	// the last handler has returned, if draining took all the time there was.
	lastBytes = 500 * time.Millisecond
	// leaving is how long handlers get to return after they were cut off.
	leaving = time.Second
	// flushing is how long the collector may take to receive the last spans.
	flushing = 3 * time.Second
)

// Shutdown ends the server. For as long as Config.Drain, or until ctx ends,
// calls that are inside go on while new ones and those that queue are refused
// on the open listener. Then what is left is cut off, upgraded connections
// included, and Shutdown returns [ErrCutOff].
func (a *App) Shutdown(ctx context.Context) error {
	draining, cancel := context.WithTimeout(ctx, a.drain)
	defer cancel()
	err := a.guard.Drain(draining)
	if err == nil {
		a.closeListener(draining)
	}
	a.cut()
	// What is left are connections on which nothing is being served: the
	// calls are the Guard's to count, since http.Server does not know of those
	// that were hijacked.
	a.server.Close()
	if err != nil {
		err = ErrCutOff
		left, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
		defer cancel()
		_ = a.guard.Drain(left)
	}
	a.gateway.close()
	a.closeAdmin() // after all else: operators may watch how it drains
	a.guard.Close()

	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushing)
	defer cancel()
	_ = a.telemetry.Shutdown(flush) // the collector's troubles are in the log
	return err
}

// closeListener lets the responses of calls that have ended reach their
// clients.
func (a *App) closeListener(draining context.Context) {
	deadline, _ := draining.Deadline()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(draining), max(time.Until(deadline), lastBytes))
	defer cancel()
	_ = a.server.Shutdown(ctx)
}
