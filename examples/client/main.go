// Command client shows what watertight does, on real traffic over loopback.
//
//	client [-target URL [-upstream NAME]...] [-otlp URL] [-duration DURATION]
//	client -soak DURATION [-admin ADDR]
//
// Without -target it starts the example server in its own process, with two
// upstreams behind it: one stays healthy, the other turns slow, then fails,
// then is well again. With -target it drives a server that runs already, whose
// policies are its own, and those of its upstreams that -upstream names.
//
// With -soak it shows nothing but that the books balance: 256 callers read, leave,
// cancel, upload and forget, three upstreams turn slow, fail, hang, break off, refuse
// and come back every few seconds, and the limits change every second. Every call that
// arrives must be granted, rejected or gone, and every permit that is granted must come
// back. That is checked every second while it goes on, every five with everybody at
// rest, and at the end, when neither goroutines nor open files may be left either. With
// -admin it can be watched on the live page.
//
// It exits with status 0 if what it promises held, with 1 if not or if it could
// not start, with 2 if it was called wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/watertight-go/watertight/examples/internal/soak"
	"github.com/watertight-go/watertight/examples/internal/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// minDuration leaves the breaker time to trip, to try and to recover.
const minDuration = 5 * time.Second

type config struct {
	target    *url.URL // nil: the server is started here
	upstreams []string // of the target
	otlp      string
	duration  time.Duration
	soak      time.Duration // 0: a demonstration
	admin     string        // of the soak
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if cfg.soak > 0 {
		err := soak.Run(ctx, soak.Config{
			Duration: cfg.soak, Concurrency: 256, Settle: 5 * time.Second, Fault: 2 * time.Second, Limits: time.Second, Admin: cfg.admin,
		}, stdout)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	d, err := newDemo(ctx, cfg, stdout)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	defer d.close()
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if !d.report(ctx) {
		return 1
	}
	return 0
}

// parse reads the flags. What is wrong with them it has told to stderr.
func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{}
	fs := flag.NewFlagSet("client", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Func("target", "`URL` of a running example server; without it one is started here", func(s string) error {
		u, err := url.Parse(s)
		if err != nil {
			return err
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
			return errors.New("want a URL such as http://127.0.0.1:8080")
		}
		cfg.target = u
		return nil
	})
	fs.Func("upstream", "`NAME` of an upstream of the target to call as well; may be repeated", func(s string) error {
		cfg.upstreams = append(cfg.upstreams, s)
		return nil
	})
	fs.Func("otlp", "`URL` of an OTLP/HTTP collector, such as http://127.0.0.1:4318; without it the traces are printed", func(s string) error {
		_, err := telemetry.ParseOTLP(s)
		cfg.otlp = s
		return err
	})
	fs.DurationVar(&cfg.duration, "duration", 15*time.Second, "how `long` to send load, at least "+minDuration.String())
	fs.DurationVar(&cfg.soak, "soak", 0, "how `long` to look for permits that get lost, at least "+minDuration.String()+", instead of the demonstration")
	fs.StringVar(&cfg.admin, "admin", "", "`address` for the live page of -soak, such as 127.0.0.1:6060; none without it")
	err := fs.Parse(args)
	if err != nil {
		return cfg, err
	}
	if err = check(fs, cfg); err != nil {
		fmt.Fprintln(stderr, err)
		fs.Usage()
	}
	return cfg, err
}

func check(fs *flag.FlagSet, cfg config) error {
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case cfg.duration < minDuration:
		return fmt.Errorf("-duration %s: want at least %s", cfg.duration, minDuration)
	case given(fs, "soak") && cfg.soak < minDuration:
		return fmt.Errorf("-soak %s: want at least %s", cfg.soak, minDuration)
	case cfg.admin != "" && cfg.soak == 0:
		return errors.New("-admin shows the live page of -soak; the example server has one of its own")
	case cfg.soak > 0 && (cfg.target != nil || given(fs, "duration") || cfg.otlp != ""):
		return errors.New("-soak takes no other flag but -admin: it has its own upstreams, and no traces")
	case cfg.target == nil && len(cfg.upstreams) > 0:
		return errors.New("-upstream names upstreams of a -target; without one the demonstration has its own")
	}
	return nil
}

// given reports whether a flag was given.
func given(fs *flag.FlagSet, name string) (ok bool) {
	fs.Visit(func(f *flag.Flag) { ok = ok || f.Name == name })
	return ok
}
