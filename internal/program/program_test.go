package program_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/internal/program"
)

// TestMain is also the program that the tests run.
func TestMain(m *testing.M) {
	how := os.Getenv("PROGRAM_TEST")
	if how == "" {
		os.Exit(m.Run())
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Println("here is", how)
	switch how {
	case "one that ends":
		os.Exit(3)
	case "one that listens":
		<-asked
		os.Exit(4)
	}
}

func status(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

func start(t *testing.T, how string) *program.Program {
	t.Helper()
	return program.Start(t, []string{"PROGRAM_TEST=" + how}, os.Args[0])
}

func TestOneThatEnds(t *testing.T) {
	p := start(t, "one that ends")
	assert.Equal(t, 3, status(t, p.Wait(t, time.Minute)))
	<-p.Exited()
	assert.Equal(t, 3, status(t, p.Status()))
	assert.Equal(t, 3, status(t, p.Stop()), "it has ended already")
	assert.Equal(t, "here is one that ends\n", p.Output())
}

func TestOneThatIsAskedToEnd(t *testing.T) {
	p := start(t, "one that listens")
	assert.Equal(t, "listens", p.Says(t, `that (\w+)\n`))
	assert.Equal(t, 4, status(t, p.Stop()))
}

// Whoever forgets a program finds it ended all the same.
func TestEndsWithItsTest(t *testing.T) {
	var p *program.Program
	t.Run("forgetful", func(t *testing.T) {
		p = start(t, "one that listens")
		p.Says(t, `(here)`)
	})
	select {
	case <-p.Exited():
	default:
		assert.Fail(t, "it runs on")
	}
}
