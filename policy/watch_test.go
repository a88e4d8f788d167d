package policy_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/watertight-go/watertight/policy"
)

// limiting is a file with one policy.
func limiting(name string) string {
	return "version: 1\npolicies: [{name: " + name + ", bulkhead: {maxConcurrent: 1}}]\n"
}

// A told is what a Watcher has called back with.
type told struct {
	name string // of the first policy
	err  error
	at   time.Duration // since Run
}

// watch runs a Watcher in the bubble of t. The function it returns gives what has
// been told since it was last called.
func watch(t *testing.T, path string) (w *policy.Watcher, news func() []told) {
	t.Helper()
	w, err := policy.Watch(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	all := make(chan told, 100)
	began := time.Now()
	go w.Run(ctx, func(set *policy.Set, err error) {
		n := told{err: err, at: time.Since(began)}
		if set != nil {
			n.name = set.Rules()[0].Name
		}
		all <- n
	})
	return w, func() (since []told) {
		synctest.Wait()
		for len(all) > 0 {
			since = append(since, <-all)
		}
		return since
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// Every way in which editors, deployments and people put a new file in place is
// seen within a second and the time in which it has to settle.
func TestWatchSeesEveryKindOfChange(t *testing.T) {
	type file struct{ path, dir string }
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, f *file)
		change  func(t *testing.T, f *file)
	}{
		{"in place", nil, func(t *testing.T, f *file) { write(t, f.path, limiting("other")) }},
		{"in place, of the same length and with the same time", nil, func(t *testing.T, f *file) {
			info, err := os.Stat(f.path)
			require.NoError(t, err)
			write(t, f.path, limiting("other"))
			require.NoError(t, os.Chtimes(f.path, info.ModTime(), info.ModTime()))
		}},
		{"by rename", nil, func(t *testing.T, f *file) {
			write(t, f.path+".new", limiting("other"))
			require.NoError(t, os.Rename(f.path+".new", f.path))
		}},
		{"removed and created", nil, func(t *testing.T, f *file) {
			require.NoError(t, os.Remove(f.path))
			write(t, f.path, limiting("other"))
		}},
		{"ConfigMap", func(t *testing.T, f *file) {
			// As the kubelet lays it out: FILE -> ..data/FILE, ..data -> ..VERSION.
			require.NoError(t, os.Remove(f.path))
			require.NoError(t, os.Mkdir(filepath.Join(f.dir, "..1"), 0o700))
			write(t, filepath.Join(f.dir, "..1", "p.yaml"), limiting("first"))
			require.NoError(t, os.Symlink("..1", filepath.Join(f.dir, "..data")))
			require.NoError(t, os.Symlink(filepath.Join("..data", "p.yaml"), f.path))
		}, func(t *testing.T, f *file) {
			require.NoError(t, os.Mkdir(filepath.Join(f.dir, "..2"), 0o700))
			write(t, filepath.Join(f.dir, "..2", "p.yaml"), limiting("other"))
			require.NoError(t, os.Symlink("..2", filepath.Join(f.dir, "..data_tmp")))
			require.NoError(t, os.Rename(filepath.Join(f.dir, "..data_tmp"), filepath.Join(f.dir, "..data")))
			require.NoError(t, os.RemoveAll(filepath.Join(f.dir, "..1")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &file{dir: t.TempDir()}
			f.path = filepath.Join(f.dir, "p.yaml")
			write(t, f.path, limiting("first"))
			if c.prepare != nil {
				c.prepare(t, f)
			}
			synctest.Test(t, func(t *testing.T) {
				w, news := watch(t, f.path)
				time.Sleep(10500 * time.Millisecond)
				require.Empty(t, news())
				require.Equal(t, "first", w.Set().Rules()[0].Name)

				c.change(t, f)
				time.Sleep(10 * time.Second)
				assert.Equal(t, []told{{name: "other", at: 11100 * time.Millisecond}}, news())
				assert.Equal(t, "other", w.Set().Rules()[0].Name)
			})
		})
	}
}

// A change between Watch and Run is not lost.
func TestWatchTellsWhatChangedBeforeRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, limiting("first"))
	synctest.Test(t, func(t *testing.T) {
		w, err := policy.Watch(path)
		require.NoError(t, err)
		write(t, path, limiting("other"))
		time.Sleep(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var names []string
		w.Run(ctx, func(set *policy.Set, err error) {
			require.NoError(t, err)
			names = append(names, set.Rules()[0].Name)
			cancel()
		})
		assert.Equal(t, []string{"other"}, names)
	})
}

// Half of a file that is being written may be a valid file with half of the
// policies: it must not be taken for the whole.
func TestWatchWaitsForAFileToSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, limiting("first"))
	synctest.Test(t, func(t *testing.T) {
		_, news := watch(t, path)
		time.Sleep(950 * time.Millisecond)
		text := "version: 1\npolicies:\n"
		for _, name := range []string{"a", "b", "c", "d"} {
			text += "  - {name: " + name + ", bulkhead: {maxConcurrent: 1}}\n"
			write(t, path, text)
			time.Sleep(90 * time.Millisecond)
		}
		require.Empty(t, news())
		time.Sleep(time.Second)
		assert.Equal(t, []told{{name: "a", at: 1400 * time.Millisecond}}, news())
	})
}

// A bad file is told of once, and leaves the set alone; each other bad file is
// told of, and the good one that ends it, also if it is the same as before.
func TestWatchTellsOfABadFileUntilItIsMended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, limiting("first"))
	synctest.Test(t, func(t *testing.T) {
		w, news := watch(t, path)
		first := w.Set()
		for _, text := range []string{"version: 1\npolicies: [{nam: a}]\n", "version: 2\n", ""} {
			write(t, path, text)
			time.Sleep(10 * time.Second)
			got := news()
			require.Len(t, got, 1)
			var errs policy.Errors
			require.ErrorAs(t, got[0].err, &errs)
			_, want := policy.Load(path)
			require.EqualError(t, errs, want.Error())
			require.Same(t, first, w.Set())
		}
		write(t, path, limiting("first"))
		time.Sleep(10 * time.Second)
		got := news()
		require.Len(t, got, 1)
		require.NoError(t, got[0].err)
		require.Equal(t, "first", got[0].name)
		require.NotSame(t, first, w.Set())
	})
}

// A file that is briefly missing is not worth a word; one that stays away is.
func TestWatchAFileThatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, limiting("first"))
	synctest.Test(t, func(t *testing.T) {
		_, news := watch(t, path)
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, os.Remove(path))
		time.Sleep(time.Second)
		write(t, path, limiting("first"))
		time.Sleep(10 * time.Second)
		require.Empty(t, news())

		require.NoError(t, os.Remove(path))
		time.Sleep(10 * time.Second)
		got := news()
		require.Len(t, got, 1)
		require.ErrorIs(t, got[0].err, fs.ErrNotExist)

		write(t, path, limiting("first"))
		time.Sleep(10 * time.Second)
		got = news()
		require.Len(t, got, 1)
		require.NoError(t, got[0].err)
	})
}

// A relative path stays that of the file.
func TestWatchFromAnotherDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "p.yaml", limiting("first"))
	path, err := filepath.Abs("p.yaml")
	require.NoError(t, err)
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "p.yaml"), limiting("another"))
	synctest.Test(t, func(t *testing.T) {
		w, news := watch(t, "p.yaml")
		require.Equal(t, "p.yaml", w.Path())
		require.NoError(t, os.Chdir(elsewhere)) // t.Chdir goes back
		time.Sleep(3 * time.Second)
		require.Empty(t, news())
		write(t, path, limiting("other"))
		time.Sleep(3 * time.Second)
		got := news()
		require.Len(t, got, 1)
		assert.Equal(t, "other", got[0].name)
	})
}

func TestWatchRefusesABadFileAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	_, err := policy.Watch(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	write(t, path, "version: 3\n")
	_, err = policy.Watch(path)
	require.ErrorAs(t, err, new(policy.Errors))
}

func TestWatcherRunsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, limiting("first"))
	w, err := policy.Watch(path)
	require.NoError(t, err)
	require.Equal(t, path, w.Path())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ctx, nil)
	require.Panics(t, func() { w.Run(ctx, nil) })
}
