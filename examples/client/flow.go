package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-resty/resty/v2"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// A flow is one stream of calls of a kind, from a fixed number of workers, each
// of which waits for its answer: the load is bounded whatever the server does.
type flow struct {
	name    string
	path    string
	workers int
	pause   time.Duration // of a worker, between two calls
	burst   bool          // the workers call together, once in each pause
	fast    bool          // the fault must not touch it
	call    func(ctx context.Context, path string) (status int, err error)
	results *results
}

// drive sends the flow's calls until ctx ends. Calls that have begun by then
// are finished.
func (f *flow) drive(ctx context.Context, tracer trace.Tracer, phase func() phase) {
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range f.workers {
		wg.Go(func() {
			if !f.burst {
				pause(ctx, f.pause*time.Duration(i)/time.Duration(f.workers)) // spread out
			}
			for ctx.Err() == nil {
				f.once(context.WithoutCancel(ctx), tracer, phase())
				wait := f.pause
				if f.burst {
					wait -= time.Since(begun) % f.pause
				}
				pause(ctx, wait)
			}
		})
	}
	wg.Wait()
}

// once makes a call, in a trace of its own.
func (f *flow) once(ctx context.Context, tracer trace.Tracer, p phase) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ctx, span := tracer.Start(ctx, "call "+f.name)
	defer span.End()
	begun := time.Now()
	status, err := f.call(ctx, f.path)
	f.results.add(p, status, err, time.Since(begun))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

// byHTTP calls through an http.Client.
func byHTTP(client *http.Client, base string) func(context.Context, string) (int, error) {
	return func(ctx context.Context, path string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, errors.Join(err, resp.Body.Close())
	}
}

// byResty calls through a resty client.
func byResty(client *resty.Client) func(context.Context, string) (int, error) {
	return func(ctx context.Context, path string) (int, error) {
		resp, err := client.R().SetContext(ctx).Get(path)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode(), nil
	}
}
