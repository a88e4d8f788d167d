package watertight_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/watertight-go/watertight"
)

// What counts with settle: body, by how the body ended and whether the caller was
// still there.
func TestOutcomeAtTheEndOfTheBody(t *testing.T) {
	errBroken := errors.New("connection reset")
	for _, test := range []struct {
		name   string
		status int
		gone   bool
		lasts  time.Duration
		err    error
		want   string
	}{
		{"whole", 200, false, 10 * time.Millisecond, io.EOF, "ok"},
		{"whole, 500", 500, false, 10 * time.Millisecond, io.EOF, "failed"},
		{"whole, slow", 200, false, 101 * time.Millisecond, io.EOF, "slow"},
		{"whole, although the caller has gone", 200, true, 10 * time.Millisecond, io.EOF, "ok"},
		{"closed", 200, false, 10 * time.Millisecond, nil, "ok"},
		{"closed, 500", 500, false, 10 * time.Millisecond, nil, "failed"},
		{"closed by a caller who has gone", 500, true, 10 * time.Millisecond, nil, "neutral"},
		{"closed by a caller who has gone late", 500, true, 100 * time.Millisecond, nil, "slow"},
		{"broken off", 200, false, 10 * time.Millisecond, errBroken, "failed"},
		{"broken off, because the caller has gone", 200, true, 10 * time.Millisecond, errBroken, "neutral"},
		{"broken off, because the caller has gone late", 200, true, 100 * time.Millisecond, errBroken, "slow"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t, strings.Replace(watched, "failureStatus", "settle: body, failureStatus", 1))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				call, err := g.Admit(ctx, to("a"))
				assert.NoError(t, err)
				call.Responded(test.status)
				assert.Equal(t, "neutral", filed(t, g), "nothing yet")
				time.Sleep(test.lasts)
				if test.gone {
					cancel()
				}
				call.SettleBody(test.err)
				call.SettleFailure()
				call.SettleBody(errBroken)
				assert.Equal(t, test.want, filed(t, g), "the first counts")
				call.Release()
				assert.Equal(t, test.want, filed(t, g))
			})
		})
	}
}

// With settle: headers Responded files the outcome, and the body makes no
// difference; without an answer, or a breaker, there is nothing to end.
func TestSettleBodyIsOnlyForWhatRespondedLeftOpen(t *testing.T) {
	g := guard(t, watched)
	call := admit(t, g, to("a"))
	call.SettleBody(io.ErrUnexpectedEOF)
	assert.Equal(t, "neutral", filed(t, g))
	call.Responded(200)
	assert.Equal(t, "ok", filed(t, g))
	call.SettleBody(io.ErrUnexpectedEOF)
	call.Responded(500)
	assert.Equal(t, "ok", filed(t, g))
	call.Release()

	var none watertight.Call
	none.Responded(200)
	none.SettleBody(nil)
	none.Release()
}

// A call that is released without SettleBody is no outcome, and a probe comes back.
func TestABodyWithoutAnEndIsNoOutcome(t *testing.T) {
	g := guard(t, strings.Replace(watched, "failureStatus", "settle: body, failureStatus", 1))
	call := admit(t, g, to("a"))
	call.Responded(500)
	call.Release()
	call.SettleBody(io.EOF) // too late
	assert.Equal(t, "neutral", filed(t, g))
}
