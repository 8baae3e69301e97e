// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// hostile are keys that whoever can write to the store may hold: the shells'
// completion puts a key into the command line, and evaluates that at the next TAB.
var hostile = []string{
	"--store=sqlite:PWNED", "aa$(touch PWNED)1", "aa$(touch PWNED)2", "bb`touch PWNED`", "cc;touch PWNED;1", "cc;touch PWNED;2", "dd(touch PWNED)1",
	"dd(touch PWNED)2", "ee\ttouch PWNED", "ff\x1b]0;PWNED\a", "_activeHelp_ \x1b]0;PWNED\a",
}

const ctrlU = "\x15"

func TestCompletionRunsNoKey(t *testing.T) {
	t.Parallel()
	t.Run("bash", func(t *testing.T) {
		// The shells' completion for bash rests on this package.
		const helpers = "/usr/share/bash-completion/bash_completion"
		testserver.Require(t, "bash")
		testserver.RequireFile(t, "bash", helpers)
		completesSafely(t, "unset HISTFILE; PS1='PROMPT'\">\"; . "+helpers+"; . <(hasp completion bash)", "bash", "--norc", "-i")
	})
	t.Run("zsh", func(t *testing.T) {
		testserver.Require(t, "zsh")
		completesSafely(t, "PS1='PROMPT'\">\"; autoload -U compinit; compinit -u -D; . <(hasp completion zsh)", "zsh", "-f", "-i")
	})
	t.Run("fish", func(t *testing.T) {
		testserver.Require(t, "fish")
		completesSafely(t, "function fish_prompt; echo 'PROMPT'\">\"; end; hasp completion fish | source", "fish", "--no-config", "-i")
	})
}

// completesSafely starts a shell that completes hasp, and presses TAB behind the
// beginning of each hostile key as often as it takes to insert and evaluate it.
func completesSafely(t *testing.T, set string, shell ...string) {
	t.Parallel()
	s := onSQLite(t)
	s.fifo("gate")
	for _, keys := range [][]string{hostile, {"orders/42.a"}} {
		s.hasp(append(append([]string{"run", "--"}, keys...), "--", "sh", "-c", "echo >>held; read x <gate")...)
	}
	if err := eventually(func() bool {
		text, _ := os.ReadFile(filepath.Join(s.dir, "held"))
		return len(text) == 2
	}); err != nil {
		t.Fatalf("holding the keys: %v", err)
	}
	sc := s.atTerminal(t, shell...)
	sc.run(set)
	answers := func(word string) { // and reads the next line itself, no longer the terminal
		sc.run("sh -c 'echo " + word + "$((40+2))'")
		sc.expect(word + "42")
		sc.expect("PROMPT>")
	}
	answers("set")
	sc.send("hasp show ord\t\n") // it does complete what is harmless
	sc.expect(`^key +"orders/42\.a"`)
	answers("shown")
	begun := []string{"", "-"}
	for _, key := range hostile {
		begun = append(begun, key[:2])
	}
	for i, b := range slices.Compact(begun) {
		sc.send("hasp show " + b + "\t\t \t" + ctrlU)
		answers(fmt.Sprintf("done%d.", i))
		if _, err := os.Stat(filepath.Join(s.dir, "PWNED")); err == nil {
			t.Fatalf("the completion of %q ran a command; the terminal shows:\n%.2000q", b, sc.text.String())
		}
	}
	if strings.Contains(sc.text.String(), "\x1b]0;PWNED") {
		t.Errorf("a key reached the terminal:\n%.2000q", sc.text.String())
	}
}
