// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/hasplock/hasp"
)

// slots is the limit of the semaphore beside the key of mixPart.
const slots = 2

// mixPart writes to a file and reads it, under a key that others read and write
// with it, and takes slots of a semaphore. args are the key, the file and how
// often.
func mixPart(db *sql.DB, args []string) error {
	key, log := args[0], args[1]
	locks, err := hasp.New(waiting(db), nil)
	if err != nil {
		return err
	}
	rounds, err := toBegin(args[2])
	if err != nil {
		return err
	}
	rw, sem := locks.RWMutex(key, nil), locks.Semaphore(key+"/slots", slots, nil)
	for i := range rounds {
		switch i % 4 {
		case 0:
			err = rw.Do(context.Background(), func(ctx context.Context, l *hasp.Lease) error {
				if err := appendLine(log, l.Fence()); err != nil {
					return err
				}
				if err := l.Downgrade(ctx); err != nil {
					return err
				}
				return unchanged(log)
			})
		case 1:
			err = sem.Do(context.Background(), func(_ context.Context, l *hasp.Lease) error {
				return alone(log, l.Slot())
			})
		default:
			err = rw.RDo(context.Background(), func(context.Context, *hasp.Lease) error { return unchanged(log) })
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("done")
	return errors.Join(locks.Close(), db.Close())
}

// unchanged reads a file several times.
func unchanged(path string) error {
	first, err := os.ReadFile(path)
	for range 5 {
		next, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(first, next) {
			return fmt.Errorf("somebody writes to %s, beside one who reads it", path)
		}
	}
	return err
}

// alone fails when another process has the same slot.
func alone(log string, slot int) error {
	if slot < 0 || slot >= slots {
		return fmt.Errorf("the slot %d of %d", slot, slots)
	}
	path := fmt.Sprint(log, ".slot", slot)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(path))
}

// Rule: of several processes that share a file those who read a key hold it
// together, one who writes it holds it alone until it is a reader, and each
// slot of a semaphore has one holder.
func TestProcessesShareKeys(t *testing.T) {
	t.Parallel()
	const processes, rounds = 4, 24
	path, log := newFile(t), filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(log, nil, 0o600))
	all := ready(t, processes, func(_ int) *process { return start(t, "mix", path, "orders/42", log, strconv.Itoa(rounds)) })
	beginAll(all)
	for _, p := range all {
		p.says("done")
	}
	checkLog(t, log, processes*rounds/4)
}
