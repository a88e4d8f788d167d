// Package soak puts a Guard under a load that goes wrong in every way, for as long as
// one likes, and keeps books about it. Callers read, leave, cancel, upload and forget;
// upstreams turn slow, fail, hang, break off, refuse and come back; limits change every
// second. Whatever happens, the books have to balance.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/dashboard"
	"github.com/watertight-go/watertight/transport"
)

// A Config says how much of it there is. All fields but Admin are required.
type Config struct {
	Duration    time.Duration
	Concurrency int           // callers at once
	Settle      time.Duration // how often everybody stops, and the books are closed
	Fault       time.Duration // how long each upstream keeps a mood
	Limits      time.Duration // how often limits change
	Admin       string        // address of a live page to watch it on; empty: none
}

// Run soaks until cfg.Duration is over or ctx is done, and tells about it on out. The
// error says what did not balance, or that ctx was done.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	before := takeStock()
	s := &soak{cfg: cfg, out: out, books: newBooks()}
	s.endless, s.end = context.WithCancel(context.Background())
	if err := s.start(); err != nil {
		return err
	}
	err := s.run(ctx)
	s.stop()
	if err == nil {
		err = before.compare(takeStock)
	}
	s.summary(err)
	return err
}

// A soak is a run.
type soak struct {
	cfg       Config
	out       io.Writer
	books     *books
	guard     *watertight.Guard
	base      *http.Transport
	client    *http.Client
	upstreams []*upstream
	page      *http.Server // nil: none
	begun     time.Time
	heap      uint64 // when the books were first closed; 0: they were not

	// What dropped calls are made under. Their permits come back by the garbage
	// collector; net/http gives their connections back only when it ends.
	endless context.Context
	end     context.CancelFunc

	// Each call holds it for reading. Whoever holds it for writing is alone.
	calls sync.RWMutex

	reloads, settlements, moods int
}

func (s *soak) start() error {
	set, err := policies(limitsAt(32))
	if err != nil {
		return err
	}
	s.guard = watertight.New(set, watertight.WithHooks(s.books.hooks()), watertight.WithLogger(silent))
	s.base = &http.Transport{MaxIdleConnsPerHost: s.cfg.Concurrency}
	s.client = &http.Client{Transport: transport.New(counting{s.base}, s.guard)}
	for range 3 {
		u, err := startUpstream(s.guard, s.books)
		if err != nil {
			s.stop()
			return err
		}
		s.upstreams = append(s.upstreams, u)
	}
	if err := s.show(); err != nil {
		s.stop()
		return err
	}
	return nil
}

func (s *soak) stop() {
	s.end()
	s.base.CloseIdleConnections()
	for _, u := range s.upstreams {
		u.close()
	}
	s.guard.Close()
	if s.page != nil {
		s.page.Close()
	}
}

// show serves the live page, if somebody wants to watch.
func (s *soak) show() error {
	if s.cfg.Admin == "" {
		return nil
	}
	ln, err := net.Listen("tcp", s.cfg.Admin)
	if err != nil {
		return err
	}
	s.page = &http.Server{Handler: dashboard.Handler(s.guard), ReadHeaderTimeout: 10 * time.Second}
	go s.page.Serve(ln) // until stop
	fmt.Fprintf(s.out, "to watch: http://%s/\n", ln.Addr())
	return nil
}

// run lets callers, faults and limits loose on each other until the time is over.
func (s *soak) run(ctx context.Context) error {
	s.begun = time.Now()
	loose, cancel := context.WithTimeout(ctx, s.cfg.Duration)
	defer cancel()
	var wg sync.WaitGroup
	for range s.cfg.Concurrency {
		wg.Go(func() { s.callOn(loose) })
	}
	err := s.supervise(loose)
	cancel()
	wg.Wait()
	for _, u := range s.upstreams {
		err = errors.Join(err, u.turn(well))
	}
	if err == nil {
		err = s.settle()
	}
	if err == nil {
		err = s.recover()
	}
	if err == nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted after %s", time.Since(s.begun).Round(time.Second))
	}
	return err
}

// supervise changes limits and moods, and looks at the books: every second as they
// are, with everybody at it, and from time to time closed, with everybody at rest.
func (s *soak) supervise(ctx context.Context) error {
	limits, faults := time.NewTicker(s.cfg.Limits), time.NewTicker(s.cfg.Fault)
	look, settle := time.NewTicker(time.Second), time.NewTicker(s.cfg.Settle)
	defer limits.Stop()
	defer faults.Stop()
	defer look.Stop()
	defer settle.Stop()
	// At once as well, so that a short run on a busy machine meets both.
	err := errors.Join(s.changeLimits(), s.changeMood())
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-limits.C:
			err = s.changeLimits()
		case <-faults.C:
			err = s.changeMood()
		case <-look.C:
			err = s.books.look(s.guard, s.cfg.Concurrency)
			s.progress()
		case <-settle.C:
			err = s.settle()
		}
	}
	return err
}

func (s *soak) changeLimits() error { return s.reload(limitsAt(1 + rand.IntN(64))) }

func (s *soak) changeMood() error {
	u := s.upstreams[s.moods%len(s.upstreams)]
	s.moods++
	return u.turn(nextMood())
}

// settle waits until everybody is at rest, and closes the books.
func (s *soak) settle() error {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.books.close(s.guard); err != nil {
		return err
	}
	s.settlements++
	now := heapInUse()
	if s.heap == 0 {
		s.heap = now
	}
	if now > 2*s.heap+16<<20 {
		return fmt.Errorf("%d bytes of memory are in use with everybody at rest, and were %d", now, s.heap)
	}
	return nil
}

// recover sees that every breaker closes and every limit is exact, now that all is well.
func (s *soak) recover() error {
	const limit = 7
	if err := s.reload(limitsAt(limit)); err != nil {
		return err
	}
	for _, u := range s.upstreams {
		if err := s.closeBreaker(u); err != nil {
			return err
		}
		if err := s.exact(u, limit); err != nil {
			return err
		}
	}
	if err := s.settle(); err != nil {
		return err
	}
	// What no count shows: that nothing waits for a call that is gone.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.guard.Drain(ctx); err != nil {
		return fmt.Errorf("everybody is at rest, and yet somebody is inside: drain: %w", err)
	}
	return nil
}

// closeBreaker calls until the breaker of an upstream is closed.
func (s *soak) closeBreaker(u *upstream) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		s.call(ctx, u, readAll)
		for _, c := range s.guard.Snapshot().Compartments {
			if c.Key == u.key() && c.Breaker.State == "closed" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the breaker of %s did not close although all is well", u.key())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// exact holds as many calls as the limit allows, and has the next one refused.
func (s *soak) exact(u *upstream, limit int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range limit + 1 {
		s.books.arrived.Add(1)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url+"/hold", nil)
		if err != nil {
			return err
		}
		resp, err := s.client.Do(r)
		s.books.decided(err == nil, err)
		switch {
		case err != nil && i < limit:
			return fmt.Errorf("call %d of %d to %s: %w", i+1, limit, u.key(), err)
		case err == nil && i == limit:
			resp.Body.Close()
			return fmt.Errorf("%d calls to %s are in flight, and the limit is %d", limit+1, u.key(), limit)
		case err == nil:
			defer resp.Body.Close()
		}
	}
	return nil
}
