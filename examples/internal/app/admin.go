package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/watertight-go/watertight/dashboard"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
)

// An admin is what operators look at while the service is in trouble: a listener and an
// http.Server of its own. Behind the limits of the Guard it would be refused in the very
// incident that it is there to show, and on the service's listener it would be open to
// whoever can reach the service.
type admin struct {
	server *http.Server
	ln     net.Listener
	meters *telemetry.Meters
	url    string
	cut    context.CancelFunc // ends the context of every request
}

// newAdmin listens, and serves nothing yet.
func newAdmin(ctx context.Context, addr, service string, log *slog.Logger) (*admin, error) {
	meters, err := telemetry.NewMeters(service, log)
	if err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin: %w; another address, or none, is one flag away: -admin", err)
	}
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	return &admin{
		server: &http.Server{
			BaseContext: func(net.Listener) context.Context { return base },
			ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelWarn),
			// No WriteTimeout: it would end the stream of a live page.
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
		},
		ln:     ln,
		meters: meters,
		url:    "http://" + ln.Addr().String() + "/",
		cut:    cut,
	}, nil
}

// adminHandler has what operators look at: the live page, and the metrics that Prometheus
// scrapes.
func (a *App) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", dashboard.Handler(a.guard))
	mux.Handle("GET /metrics", a.admin.meters.Handler())
	return mux
}

// serve reports why it ends, but for close.
func (ad *admin) serve(h http.Handler, failed chan<- error) {
	ad.server.Handler = h
	go func() {
		if err := ad.server.Serve(ad.ln); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("admin: %w", err)
		}
	}()
}

// closeAdmin ends what is being served, if there is anything: streams at once, a scrape
// after its last byte.
func (a *App) closeAdmin() {
	if a.admin == nil {
		return
	}
	a.admin.cut()
	ctx, cancel := context.WithTimeout(context.Background(), lastBytes)
	defer cancel()
	_ = a.admin.server.Shutdown(ctx) // who has not read all by then is cut off below
	a.admin.server.Close()
	a.admin.ln.Close()               // if nothing was served yet
	_ = a.admin.meters.Shutdown(ctx) // nothing is sent anywhere
}
