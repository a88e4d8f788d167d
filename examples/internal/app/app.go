// Package app is the example server: a chi service with routes that are slow,
// failing or streaming on request, and a gateway to other services, all behind
// one watertight.Guard. It runs as a program (examples/server) and inside
// another one (examples/client).
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight"
	"github.com/watertight-go/watertight/bulkhead"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
	"github.com/watertight-go/watertight/examples/internal/tracestore"
	"github.com/watertight-go/watertight/metrics"
	"github.com/watertight-go/watertight/policy"
)

// Config says how the server runs. The zero value is a server on a free port of
// the loopback interface, with the policies that are built in and no upstream.
type Config struct {
	// Addr is the address to listen on. Empty: 127.0.0.1:0.
	Addr string
	// Admin is the address of the listener for operators, on which /metrics is. Empty:
	// there is none, and no metrics.
	Admin string
	// Policies are used if they are not nil.
	Policies *policy.Set
	// PolicyFile is read, and followed when it changes, if Policies is nil. Empty: the
	// built-in policies.
	PolicyFile string
	// Upstreams are the URLs of the services behind /upstream/NAME/, by name.
	Upstreams map[string]string
	// UpstreamTimeout is how long the gateway waits for the headers of an
	// upstream's response. 0: 30 seconds; negative: as long as the caller does.
	UpstreamTimeout time.Duration
	// OTLP is the URL of a collector of spans. Empty: they are kept in memory.
	OTLP string
	// Traces keeps the spans if OTLP is empty. nil: a store of its own.
	Traces *tracestore.Store
	// Hooks are called beside those that make the spans.
	Hooks watertight.Hooks
	// ServiceName is the name under which the spans appear. Empty:
	// watertight-server.
	ServiceName string
	// Drain is how long Shutdown waits for calls that are inside. 0: it does
	// not.
	Drain time.Duration
	// Stdout gets the line that says where the server listens, and after it the one
	// that says where operators look. nil: nobody.
	Stdout io.Writer
	// Stderr gets the log. nil: nobody.
	Stderr io.Writer
}

// An App is a running server. Shutdown ends it.
type App struct {
	guard     *watertight.Guard
	telemetry *telemetry.Telemetry
	server    *http.Server
	gateway   *gateway
	jobs      *watertight.Pool
	admin     *admin // nil: none
	url       string
	drain     time.Duration
	cut       context.CancelFunc // ends the context of every request, and the watch of the policy file
	failed    chan error
}

// Start starts a server; ctx bounds the start alone. If the policies are wrong
// the error is of type [policy.Errors].
func Start(ctx context.Context, cfg Config) (*App, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.ServiceName == "" {
		cfg.ServiceName = "watertight-server"
	}
	if cfg.Stdout == nil {
		cfg.Stdout = io.Discard
	}
	if cfg.Stderr == nil {
		cfg.Stderr = io.Discard
	}
	log := slog.New(slog.NewTextHandler(cfg.Stderr, nil))

	policies, watcher, err := loadPolicies(cfg)
	if err != nil {
		return nil, err
	}
	upstreams, err := parseUpstreams(cfg.Upstreams)
	if err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	tel, err := telemetry.New(ctx, telemetry.Config{
		Service: cfg.ServiceName,
		OTLP:    cfg.OTLP,
		Store:   cfg.Traces,
		Logger:  log,
	})
	if err != nil {
		ln.Close()
		return nil, fmt.Errorf("otlp: %w", err)
	}

	a := &App{
		telemetry: tel,
		url:       "http://" + ln.Addr().String(),
		drain:     cfg.Drain,
		failed:    make(chan error, 2), // one for each listener
	}
	reports := []metrics.Option{metrics.WithTracerProvider(tel.Provider()), metrics.WithLogger(log)}
	if cfg.Admin != "" {
		a.admin, err = newAdmin(ctx, cfg.Admin, cfg.ServiceName, log)
		if err != nil {
			ln.Close()
			return nil, errors.Join(err, tel.Shutdown(ctx))
		}
		reports = append(reports, metrics.WithMeterProvider(a.admin.meters.Provider()))
	}
	a.guard = watertight.New(policies,
		watertight.WithLogger(log),
		watertight.WithHooks(metrics.New(reports...)),
		watertight.WithHooks(cfg.Hooks))
	if a.jobs, err = a.guard.Pool("jobs", jobs); err != nil {
		ln.Close()
		a.closeAdmin()
		a.guard.Close()
		return nil, errors.Join(err, tel.Shutdown(ctx))
	}
	a.gateway = newGateway(upstreams, cfg.UpstreamTimeout, a.guard, tel.Provider(), log)

	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	a.cut = cut
	if watcher != nil {
		go a.guard.Follow(base, watcher)
	}
	if a.admin != nil {
		a.admin.serve(a.adminHandler(), a.failed)
	}
	a.server = newServer(base, a.handler(), log)
	go a.serve(ln)
	fmt.Fprintf(cfg.Stdout, "listening on %s\n", a.url)
	if a.admin != nil {
		fmt.Fprintf(cfg.Stdout, "for operators: %s\n", a.admin.url)
	}
	return a, nil
}

// jobs are the workers behind /pool/{ms}: few, so that there is something to see.
var jobs = bulkhead.PoolConfig{Core: 2, Max: 4, KeepAlive: 10 * time.Second, Backlog: 8}

func newServer(base context.Context, h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:   h,
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			// The default, 250, would be a limit in front of those of the
			// policies.
			MaxConcurrentStreams: 1000,
			// The body of a request that queues is not read, and holds its share
			// of what its connection may send. By default one such body holds all
			// of it, and stalls the uploads that were let in. Now it takes 63:
			// this is the most that net/http allows for a connection, and the
			// least for a request, since clients start with 64 KiB before they
			// hear of another figure.
			MaxReceiveBufferPerConnection: 4<<20 - 1,
			MaxReceiveBufferPerStream:     64 << 10,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// No WriteTimeout and no ReadTimeout: they would end long streams and
		// slow uploads, which hold a permit but do no harm.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

func (a *App) serve(ln net.Listener) {
	if err := a.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		a.failed <- err
	}
}

// URL returns where the server listens, such as http://127.0.0.1:8080.
func (a *App) URL() string { return a.url }

// AdminURL returns where operators look, such as http://127.0.0.1:6060/; "" if nowhere.
func (a *App) AdminURL() string {
	if a.admin == nil {
		return ""
	}
	return a.admin.url
}

// Guard returns the Guard that all calls of the server pass, in and out.
func (a *App) Guard() *watertight.Guard { return a.guard }

// Traces returns the store of recent traces; nil if they go to a collector.
func (a *App) Traces() *tracestore.Store { return a.telemetry.Store() }

// TracerProvider returns what makes the server's spans.
func (a *App) TracerProvider() trace.TracerProvider { return a.telemetry.Provider() }

// Failed returns a channel that gets the error if one of the listeners stops accepting
// connections although nobody called Shutdown.
func (a *App) Failed() <-chan error { return a.failed }
