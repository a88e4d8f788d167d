package policy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// How long a [Watcher] waits between two looks at its file.
const (
	// watchEvery is the time while nothing happens.
	watchEvery = time.Second
	// watchSettle is the time in which a file that has changed must stay as it
	// is. One that is written in place is empty for a moment, and then not yet
	// whole; and half of a policy file may well be a valid policy file.
	watchSettle = 100 * time.Millisecond
)

// A Watcher follows a policy file: see [Watch]. Its methods may be called from any
// number of goroutines.
type Watcher struct {
	path string // as it was given
	file string // the same wherever the program goes
	opts []LoadOption
	set  atomic.Pointer[Set]
	seen sighting // what was last told, at first by Watch; belongs to Run then
	runs atomic.Bool
}

// Watch loads a policy file, as [Load] does, and returns a Watcher that can go on
// following it: by [Watcher.Run], or with a Guard by its Follow. Until then it holds
// nothing that had to be closed.
//
// A file that cannot be loaded is an error here, at the start of a program, and so is
// a pipe. Later on it is none: what was good stays in force. A relative path is that of
// now, wherever the program goes.
func Watch(path string, opts ...LoadOption) (*Watcher, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	seen, data := look(file)
	if seen.err != nil {
		return nil, seen.err
	}
	set, err := Parse(path, data, opts...)
	if err != nil {
		return nil, err
	}
	w := &Watcher{path: path, file: file, opts: opts, seen: seen}
	w.set.Store(set)
	return w, nil
}

// Set returns the set that was in the file when it last could be loaded.
func (w *Watcher) Set() *Set { return w.set.Load() }

// Path returns the path that was given to [Watch].
func (w *Watcher) Path() string { return w.path }

// Run follows the file until ctx is done. Whenever it has changed since [Watch] or
// since the last call, Run calls changed, in its own goroutine: with the new set, or
// with the error of [Load] if there is none. A bad file is told of once, and again
// when it has become another bad file; a good one that comes after it is told of
// even if it is the one from before.
//
// Run reads the file every second, and compares what it holds rather than its
// time: so it does not matter whether the file is written in place, replaced by
// rename, or reached through a symbolic link that is changed, as that of a
// Kubernetes ConfigMap is. A change counts once two looks, 100ms apart, have found
// the same. A file that is gone must be gone for a second to be an error.
//
// Run panics if it has been called before: a Watcher tells of a change once.
func (w *Watcher) Run(ctx context.Context, changed func(*Set, error)) {
	if w.runs.Swap(true) {
		panic("policy: Run of a Watcher is called a second time; make another one with Watch")
	}
	timer := time.NewTimer(watchEvery)
	defer timer.Stop()
	last := w.seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		seen, data := look(w.file)
		wait := watchEvery
		switch {
		case seen.same(w.seen): // nothing new, or no more
		case seen.same(last):
			w.seen = seen
			changed(w.load(seen, data))
		case seen.err == nil:
			wait = watchSettle
		}
		last = seen
		timer.Reset(wait)
	}
}

// load makes a set of what was seen.
func (w *Watcher) load(seen sighting, data []byte) (*Set, error) {
	if seen.err != nil {
		return nil, seen.err
	}
	set, err := Parse(w.path, data, w.opts...)
	if err != nil {
		return nil, err
	}
	w.set.Store(set)
	return set, nil
}

// A sighting is what a look at a file has found.
type sighting struct {
	sum [sha256.Size]byte // of what it holds
	err error             // it could not be read
}

func look(path string) (sighting, []byte) {
	// To open a pipe takes until somebody writes to it, and what is read is gone.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return sighting{err: fmt.Errorf("policy: %s is a pipe or a device, which cannot be followed; put a regular file there, or read it once with Load", path)}, nil
	}
	data, err := readFile(path)
	if err != nil {
		return sighting{err: err}, nil
	}
	return sighting{sum: sha256.Sum256(data)}, data
}

func (s sighting) same(as sighting) bool {
	return s.sum == as.sum && fmt.Sprint(s.err) == fmt.Sprint(as.err)
}
