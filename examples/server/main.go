// Command server is the example server. See the README of the project for what
// its routes do.
//
//	server [-addr ADDR] [-admin ADDR] [-policy FILE] [-upstream NAME=URL]... [-otlp URL] [-drain DURATION]
//
// At -admin, a listener of its own, are the live page and, at /metrics, what Prometheus
// scrapes.
//
// SIGTERM and SIGINT drain it; the second one ends it at once. It exits with
// status 0 after draining, with 1 if calls were cut off or if it could not
// start, with 2 if it was called wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/watertight-go/watertight/examples/internal/app"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	cfg.Stdout, cfg.Stderr = stdout, stderr

	// Before the line on stdout: whoever reads it may send a signal at once.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)

	a, err := app.Start(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	status := 0
	select {
	case err := <-a.Failed():
		fmt.Fprintln(stderr, err)
		status = 1
	case s := <-signals:
		fmt.Fprintf(stderr, "%s: draining for at most %s; once more to end at once\n", s, cfg.Drain)
	}
	done := make(chan error, 1)
	go func() { done <- a.Shutdown(context.Background()) }()
	select {
	case err := <-done:
		if err != nil {
			fmt.Fprintln(stderr, err)
			status = 1
		}
		return status
	case s := <-signals:
		fmt.Fprintf(stderr, "%s: not waiting any longer\n", s)
		return 1
	}
}

// parse reads the flags. What is wrong with them it has told to stderr.
func parse(args []string, stderr io.Writer) (app.Config, error) {
	cfg := app.Config{Upstreams: make(map[string]string)}
	fs := flag.NewFlagSet("server", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&cfg.Addr, "addr", "127.0.0.1:8080", "`address` to listen on; port 0 is any free one")
	fs.StringVar(&cfg.Admin, "admin", "127.0.0.1:6060", "`address` for operators, not behind the limits: the live page, and /metrics; port 0 is any free one, an empty address none")
	fs.StringVar(&cfg.PolicyFile, "policy", "", "policy `file`, followed when it changes; without it the built-in policies hold")
	fs.Func("otlp", "`URL` of an OTLP/HTTP collector, such as http://127.0.0.1:4318; without it spans stay in memory, at /debug/traces", func(s string) error {
		if _, err := telemetry.ParseOTLP(s); err != nil {
			return err
		}
		cfg.OTLP = s
		return nil
	})
	fs.Func("upstream", "`NAME=URL`: forward /upstream/NAME/ to URL; may be repeated", func(s string) error {
		name, base, err := app.ParseUpstream(s)
		if err != nil {
			return err
		}
		if _, ok := cfg.Upstreams[name]; ok {
			return fmt.Errorf("there is an upstream %s already", name)
		}
		cfg.Upstreams[name] = base
		return nil
	})
	fs.DurationVar(&cfg.Drain, "drain", 10*time.Second, "how `long` calls that are inside may go on after SIGTERM")
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	err := check(fs, cfg)
	if err != nil {
		fmt.Fprintln(stderr, err)
		fs.Usage()
	}
	return cfg, err
}

func check(fs *flag.FlagSet, cfg app.Config) error {
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if cfg.Drain < 0 {
		return errors.New("-drain must not be negative")
	}
	return nil
}
