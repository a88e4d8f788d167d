package browser

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// markVar is in the environment of a test that is killed, and so in that of every process
// that it has started.
const markVar = "WATERTIGHT_BROWSER_MARK"

// However a test ends, none of the browser's processes outlives it: not when it returns,
// and not when it is killed, as one that times out ends without any clean-up.
func TestChromiumEndsWithItsTest(t *testing.T) {
	if os.Getenv(markVar) != "" {
		open(t, "about:blank", desk)
		if os.Getenv(markVar+"_HANG") != "" {
			_, _ = os.Stdout.WriteString("started\n")
			select {}
		}
		return
	}
	startChromium(t) // or skip
	for _, hang := range []string{"", "yes"} {
		mark := filepath.Base(t.TempDir()) + strconv.Itoa(os.Getpid())
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", patience.String())
		// A directory of its own, since nobody cleans up after a process that is killed.
		cmd.Env = append(os.Environ(), markVar+"="+mark, markVar+"_HANG="+hang, "TMPDIR="+t.TempDir())
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = cmd.Stdout
		require.NoError(t, cmd.Start())
		var said bytes.Buffer
		if hang != "" {
			line := make([]byte, len("started\n"))
			n, err := out.Read(line)
			require.NoError(t, err)
			require.Equal(t, "started\n", string(line[:n]))
			require.Greater(t, len(marked(t, mark)), 2, "the test, the browser and its helpers")
			require.NoError(t, cmd.Process.Kill())
		}
		_, _ = said.ReadFrom(out)
		err = cmd.Wait()
		if hang == "" {
			require.NoError(t, err, "%s", said.String())
		}
		assert.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, patience, poll)
		assert.Empty(t, marked(t, mark))
	}
}

// marked returns the command lines of the processes that have the mark.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	var found []string
	for _, name := range all {
		env, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(env, []byte(markVar+"="+mark)) {
			continue // it may have ended, or be another user's
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}
