// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A writer carries out what a process wants to write, one transaction at a
// time. A transaction costs a sync of the disk, however much is in it; so what
// arrives while one runs travels together in the next. It also keeps the order
// of arrival: a Release never overtakes the Try before it.
//
// Its goroutine lives while there is work.
type writer struct {
	s *sqlite

	mu         sync.Mutex
	jobs       []*job // not begun, in order of arrival
	running    bool
	closed     bool
	waitsSince time.Time // since when it waits to begin a transaction; zero when it doesn't

	// For the goroutine alone:
	ready  bool          // the tables were there
	last   head          // as the last transaction left it
	others time.Time     // when another process was seen to have written since
	took   time.Duration // the last transaction, from when the file was ours
}

// A job is one call's part of a transaction.
type job struct {
	weight int               // rows it touches
	run    func(t *tx) error // may run again from its start, in another transaction
	asked  time.Time
	batch  *batch // nil until it begins
	gone   bool   // its caller does not wait any more
	err    error  // set before done is closed
	done   chan struct{}
}

// A batch is the jobs of one transaction. It is cancelled when no caller
// waits for any of them.
type batch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wanted int // callers that wait
}

// maxWeight bounds a batch, and so how long other processes have to wait for the
// file.
const maxWeight = 256

const (
	othersWrite = time.Second // a process that wrote so long ago may write again
	maxYield    = 20 * time.Millisecond
)

var (
	errUnwanted = errors.New("no caller waits for the answer")
	errFileWait = errors.New("waited long enough")
)

// do runs f in a transaction with others, and returns when it was committed or
// ctx has ended, whichever is first. After an error f may still be running:
// what it sets must not be looked at.
func (w *writer) do(ctx context.Context, weight int, f func(t *tx) error) error {
	if w.s.bad != nil {
		return w.s.bad
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{weight: weight, run: f, asked: time.Now(), done: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return driver.ErrClosed
	}
	w.jobs = append(w.jobs, j)
	if !w.running {
		w.running = true
		w.s.under.Go(w.loop)
	}
	w.mu.Unlock()
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return w.leave(ctx, j)
	}
}

// leave is for a caller whose ctx ended. Its job will not begin, if it has not yet.
func (w *writer) leave(ctx context.Context, j *job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-j.done:
		return j.err
	default:
	}
	err := w.s.explain(&waitError{what: diskHangs, waited: time.Since(j.asked), err: ctx.Err()})
	if !w.waitsSince.IsZero() {
		err = w.s.explain(&waitError{what: stayedLocked, waited: time.Since(w.waitsSince), err: ctx.Err()})
	}
	if j.batch != nil {
		j.batch.drop(j)
		return err
	}
	w.jobs = slices.DeleteFunc(w.jobs, func(k *job) bool { return k == j })
	return driver.NotSent(err)
}

// loop runs batches until there is nothing to do.
func (w *writer) loop() {
	for jobs := w.take(); len(jobs) > 0; jobs = w.take() {
		for b := jobs[0].batch; len(jobs) > 0; {
			jobs = w.transact(b, jobs)
		}
		w.yield()
	}
}

// yield leaves the file to other processes for a while, if there are some that write:
// SQLite has no queue. A process that waits for the file polls every 100 ms, and nearly
// always finds it locked while one process begins one transaction right after another.
func (w *writer) yield() {
	if time.Since(w.others) < othersWrite {
		time.Sleep(min(w.took, maxYield))
	}
}

// take begins a batch of the jobs that came first.
func (w *writer) take() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, weight := 0, 0
	for n < len(w.jobs) && (n == 0 || weight+w.jobs[n].weight <= maxWeight) {
		weight += w.jobs[n].weight
		n++
	}
	if n == 0 {
		w.jobs, w.running = nil, false
		return nil
	}
	b := &batch{wanted: n}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	jobs := slices.Clone(w.jobs[:n])
	w.jobs = slices.Delete(w.jobs, 0, n)
	for _, j := range jobs {
		j.batch = b
	}
	return jobs
}

// transact runs jobs in one transaction and answers them. When one fails it
// alone is answered, and the others are returned, to be run without it: what
// was rolled back left nothing. A full disk refuses a Try, and must not keep
// the Release beside it from making room.
func (w *writer) transact(b *batch, jobs []*job) []*job {
	var t *tx
	failed := -1
	err := func() (err error) {
		if t, err = w.begin(b); err != nil {
			return err
		}
		begun := time.Now()
		defer func() { w.took = time.Since(begun) }()
		if t.was != w.last && w.last != (head{}) {
			w.others = begun
		}
		for i, j := range jobs {
			if err := j.run(t); err != nil {
				failed = i
				return err
			}
		}
		ended := time.Now()
		if err := t.commit(); isLocked(err) {
			return &waitError{what: stayedLocked, waited: time.Since(ended), err: err}
		} else if err != nil {
			return err
		}
		w.last = t.head
		return nil
	}()
	if err != nil && t != nil {
		t.rollback()
	}
	if failed >= 0 {
		w.answer(b, jobs[failed:failed+1], err)
		return slices.Delete(jobs, failed, failed+1)
	}
	w.answer(b, jobs, err)
	return nil
}

// begin waits for the file's lock, for sqlite.fileWait at most, and lets callers that
// leave meanwhile know what they waited for.
func (w *writer) begin(b *batch) (*tx, error) {
	w.await(time.Now())
	defer w.await(time.Time{})
	began := time.Now()
	limit := time.AfterFunc(w.s.fileWait, func() { b.cancel(errFileWait) })
	defer limit.Stop()
	t, err := w.open(b.ctx)
	if isLocked(err) || err != nil && errors.Is(context.Cause(b.ctx), errFileWait) {
		err = &waitError{what: stayedLocked, waited: time.Since(began), err: err}
	}
	return t, err
}

func (w *writer) open(ctx context.Context) (*tx, error) {
	if err := w.s.connect(ctx); err != nil {
		return nil, err
	}
	t, err := w.s.begin(ctx)
	if err == nil || w.ready || isLocked(err) {
		w.ready = w.ready || err == nil
		return t, err
	}
	if err := w.s.setup(ctx); err != nil {
		return nil, err
	}
	w.ready = true
	return w.s.begin(ctx)
}

func (w *writer) await(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waitsSince = since
}

func (w *writer) answer(b *batch, jobs []*job, err error) {
	err = w.s.explain(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		j.err = err
		close(j.done)
		b.drop(j)
	}
}

// drop is for a job whose caller has gone. When the last caller has, the batch ends.
func (b *batch) drop(j *job) {
	if j.gone {
		return
	}
	j.gone = true
	if b.wanted--; b.wanted == 0 {
		b.cancel(errUnwanted)
	}
}

// close refuses jobs from now on.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}
