// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/spf13/cobra"
)

// exitNotHeld is the exit code of hasp held and hasp release for what the shell
// does not hold.
const exitNotHeld = 1

// socketName is the name of a keeper's socket: the shell's number and start, and
// the keeper's number.
const socketName = "%d-%d-%d"

// answerLimit bounds the wait for a keeper's answer, for which it may have to ask the
// store.
const answerLimit = 10 * time.Second

// question is what keepers are asked, about some keys or, without keys, about all.
type question struct {
	Keys    words
	Release bool
	Print   string // what to tell of each key
}

// reply is the answer of a keeper that holds some of the keys, or held them.
type reply struct {
	Keys    words    // of the question
	Facts   []string // what is to be printed of them
	Code    int      // an exit code
	Message string
}

// words are keys and arguments: any bytes, where JSON's text would keep only those of UTF-8. (encoding/gob keeps them, and takes
// a third of a millisecond at the start of every hasp.)
type words []string

// MarshalJSON implements [json.Marshaler].
func (w words) MarshalJSON() ([]byte, error) {
	all := make([][]byte, len(w))
	for i, word := range w {
		all[i] = []byte(word)
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (w *words) UnmarshalJSON(text []byte) error {
	var all [][]byte
	err := json.Unmarshal(text, &all)
	for _, word := range all {
		*w = append(*w, string(word))
	}
	return err
}

// ask asks the keepers of some processes.
func ask(q question, of []child.Process) (all []reply, err error) {
	shells, err := store.OpenShells()
	if err != nil {
		return nil, base.BadConfig(err)
	}
	names, err := shells.Names()
	if err != nil {
		return nil, base.BadConfig(err)
	}
	for _, p := range of {
		for _, name := range names {
			if !strings.HasPrefix(name, fmt.Sprintf("%d-%d-", p.PID, p.Start)) {
				continue
			}
			a, err := askOne(shells, name, q)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				a = reply{Code: base.ExitLost, Message: fmt.Sprintf("LOST: a process that holds keys for the shell (pid %d) does not answer: is it stopped?", p.PID)}
			}
			if a.Keys != nil || a.Code != 0 { // else it has none of them, or has just released them, or was killed
				all = append(all, a)
			}
		}
	}
	return all, nil
}

func askOne(shells store.Shells, name string, q question) (a reply, err error) {
	c, err := shells.Dial(name)
	if err != nil {
		return a, err
	}
	defer c.Close()
	if err = c.SetDeadline(time.Now().Add(answerLimit)); err == nil {
		err = json.NewEncoder(c).Encode(q)
	}
	if err == nil {
		err = json.NewDecoder(c).Decode(&a)
	}
	return a, err
}

// heldAround are the owners of the leases that are held for a shell that we come
// from: they last until it ends.
func heldAround() (owners []string) {
	all, _ := ask(question{Print: "owner"}, child.Around()) // a key that may be such is waited for, visibly
	for _, a := range all {
		owners = append(owners, a.Facts...)
	}
	return owners
}

// settle asks, prints what is to be printed, and ends with the last bad answer.
func settle(q question, of []child.Process) error {
	all, err := ask(q, of)
	if err != nil {
		return err
	}
	var end, failure *base.Exit
	missing := slices.Clone(q.Keys)
	for _, a := range all {
		missing = slices.DeleteFunc(missing, func(key string) bool { return slices.Contains(a.Keys, key) })
		for _, fact := range a.Facts {
			fmt.Fprintln(base.Stdout, fact)
		}
		switch {
		case a.Keys == nil:
			failure = &base.Exit{Code: a.Code, Message: a.Message}
		case a.Code != 0:
			if end != nil {
				base.Note("%s", end.Message)
			}
			end = &base.Exit{Code: a.Code, Message: a.Message}
		}
	}
	switch {
	case end != nil:
		return end
	case failure != nil && (len(missing) > 0 || len(q.Keys) == 0): // it may have what was not found
		return failure
	case len(missing) > 0:
		return &base.Exit{Code: exitNotHeld, Message: fmt.Sprintf("hasp acquire does not hold %s for this shell, or no longer does", base.QuoteAll(missing))}
	case len(all) == 0:
		return &base.Exit{Code: exitNotHeld, Message: "hasp acquire holds nothing for this shell, or no longer does"}
	}
	return nil
}

// newHeldOrRelease returns a command that asks the keepers of its caller, or of the process
// of --pid: hasp release; or hasp held, which asks those further around, too.
func newHeldOrRelease(release bool, use, short, long string) *cobra.Command {
	pid, what := 0, base.OneOf("", "fence", "owner", "slot", "abandoned")
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, words []string) error {
			keys, err := base.Distinct(words)
			if err != nil {
				return err
			}
			of := child.Around()
			if release { // a shell becomes its last command: that may be this process
				of = of[:min(len(of), 2)]
				if p, err := child.Caller(); err == nil && !slices.Contains(of, p) {
					of = append(of, p)
				}
			} else if len(keys) == 0 {
				return base.Usage("KEY is missing: hasp held KEY")
			}
			if pid != 0 {
				p, err := child.Find(pid)
				if err != nil {
					return base.Usage("%v", err)
				}
				of = []child.Process{p}
			}
			return settle(question{keys, release, what.Word}, of)
		},
	}
	cmd.Flags().IntVar(&pid, "pid", 0, "what is held for this process instead of the one that called hasp: --pid $$")
	if !release {
		what.Add(cmd, "print", "", "print this about each key: its fence, owner or slot, or whether a previous holder abandoned it")
	}
	return cmd
}
