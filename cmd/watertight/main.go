// Command watertight checks policy files and explains what they do.
//
//	watertight check FILE...
//	watertight explain FILE [-side server|client] [-X METHOD] [-H 'NAME: VALUE'] [-host HOST] [-route ROUTE] PATH
//	watertight schema
//
// Files are native policy files, or the governance files of ServiceComb and Spring
// Cloud Huawei; - is standard input. Each command says more with -h. It exits with
//
//	0  if all is well; warnings are no fault, unless check is told otherwise
//	1  if a file has errors
//	2  if it was called in a wrong way, or a file cannot be read
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/watertight-go/watertight/policy"
)

// What the program exits with.
const (
	exitFine   = 0
	exitFaulty = 1
	exitUsage  = 2
)

const usage = `watertight checks policy files and explains what they do.

  watertight check FILE...         reports every problem of the files
  watertight explain FILE PATH     says which policies decide about a request, and why
  watertight schema                prints a JSON Schema of policy files, for editors

Files are native policy files, or the governance files of ServiceComb and Spring
Cloud Huawei; - is standard input. For more, call watertight COMMAND -h.

It exits with 0 if all is well, with 1 if a file has errors, and with 2 if it was
called in a wrong way, or a file cannot be read.
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// A program is one call of the command.
type program struct {
	in       io.Reader
	out, err io.Writer
}

func run(args []string, in io.Reader, out, err io.Writer) int {
	p := &program{in, out, err}
	if len(args) == 0 {
		fmt.Fprint(err, usage)
		return exitUsage
	}
	switch command, args := args[0], args[1:]; command {
	case "check":
		return p.check(args)
	case "explain":
		return p.explain(args)
	case "schema":
		return p.schema(args)
	case "-h", "-help", "--help", "help":
		fmt.Fprint(out, usage)
		return exitFine
	default:
		return p.misused("there is no command %q; there are check, explain and schema", command)
	}
}

// misused says how the program was called in a wrong way.
func (p *program) misused(format string, args ...any) int {
	fmt.Fprintf(p.err, "watertight: "+format+"\n", args...)
	return exitUsage
}

// flags returns a flag set for a command, with what its -h says.
func (p *program) flags(command, arguments, about string) *flag.FlagSet {
	fs := flag.NewFlagSet("watertight "+command, flag.ContinueOnError)
	fs.SetOutput(p.err)
	fs.Usage = func() {
		fmt.Fprintf(fs.Output(), "watertight %s %s\n\n%s", command, arguments, about)
		any := false
		fs.VisitAll(func(*flag.Flag) { any = true })
		if any {
			fmt.Fprintf(fs.Output(), "\n")
			fs.PrintDefaults()
		}
	}
	return fs
}

// parse parses arguments, with flags before, between and after the others, which it
// returns. If ok is false, the program ends with the status.
func (p *program) parse(fs *flag.FlagSet, args []string) (others []string, status int, ok bool) {
	for _, arg := range args {
		if arg == "-h" || arg == "-help" || arg == "--help" {
			fs.SetOutput(p.out) // it was asked for
		}
	}
	for {
		switch err := fs.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, exitFine, false
		case err != nil:
			return nil, exitUsage, false // said already
		}
		if args = fs.Args(); len(args) == 0 {
			return others, exitFine, true
		}
		others, args = append(others, args[0]), args[1:]
	}
}

// reading are the flags that say how a file is read.
type reading struct {
	lenient bool
	service string
}

func (r *reading) flags(fs *flag.FlagSet) {
	fs.BoolVar(&r.lenient, "lenient", false, "read a ServiceComb file as ServiceComb does: what it passes over is a warning")
	fs.StringVar(&r.service, "service", "", "`NAME[:VERSION]` of the service whose policies are meant, in a ServiceComb file that is for several")
}

func (r *reading) options() (opts []policy.LoadOption) {
	if r.lenient {
		opts = append(opts, policy.Lenient())
	}
	if r.service != "" {
		name, version, _ := strings.Cut(r.service, ":")
		opts = append(opts, policy.Service(name, version))
	}
	return opts
}

// standardInput is how messages call it.
const standardInput = "<stdin>"

// enough is more than a policy file may have, and keeps the wrong file, or a device, from
// filling the memory.
const enough = 16 << 20

// read returns a file with the name that messages shall call it.
func (p *program) read(file string) (name string, data []byte, err error) {
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(p.in, enough))
		return standardInput, data, err
	}
	f, err := os.Open(file)
	if err != nil {
		return file, nil, err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, enough))
	return file, data, err
}
