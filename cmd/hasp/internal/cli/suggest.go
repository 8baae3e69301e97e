// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// split returns the key and the command of hasp run. args are the words after
// "hasp", words what is left of them without flags.
//
// "--" must stand between the two: without it, flags of the command would be
// taken for hasp's, today or with the next flag that hasp gets.
func split(cmd *cobra.Command, args, words []string) (key string, command []string, err error) {
	dash := cmd.ArgsLenAtDash()
	if dash == 0 && len(words) > 1 && words[1] == "--" { // -- -KEY -- COMMAND: a key that looks like a flag
		words = slices.Delete(slices.Clone(words), 1, 2)
		dash = 1
	}
	switch {
	case len(words) == 0:
		return "", nil, usage("the key and the command are missing: hasp run KEY -- COMMAND")
	case dash == 0:
		return "", nil, usage("the key is missing: hasp run KEY -- COMMAND")
	case dash != 1:
		line, ok := corrected(cmd.Flags(), args)
		if !ok {
			return "", nil, usage("the command is missing: hasp run KEY -- COMMAND")
		}
		return "", nil, usage("between KEY and COMMAND there must be a --. Did you mean:\n  %s", line)
	case len(words) == 1:
		return "", nil, usage("the command is missing after --: hasp run KEY -- COMMAND")
	}
	return words[0], words[1:], checkKey(words[0])
}

// corrected returns the command line with -- before the command, where it can
// be told which word that is. A URL that may hold a password is left out.
func corrected(flags *pflag.FlagSet, args []string) (string, bool) {
	line := slices.Clone(args)
	run, key := false, false
	for i := 0; i < len(line); i++ {
		word := line[i]
		takes, flag := value(flags, word)
		switch {
		case word == "--":
			return "", false
		case flag && takes == nil:
			return "", false
		case flag:
			if name, text, ok := strings.Cut(word, "="); ok && name == "--store" {
				line[i] = name + "=" + public(text)
			}
			if *takes {
				if i++; i < len(line) && word == "--store" {
					line[i] = public(line[i])
				}
			}
		case !run: // the word "run" itself
			run = true
		case !key:
			key = true
		default:
			return shell.Join(append([]string{"hasp"}, slices.Insert(line, i, "--")...)...), true
		}
	}
	return "", false
}

// value says whether a word is a flag, and whether its value is the next word;
// takes is nil for a flag that hasp does not have.
func value(flags *pflag.FlagSet, word string) (takes *bool, flag bool) {
	yes, no := true, false
	if long, ok := strings.CutPrefix(word, "--"); ok && long != "" {
		name, _, inside := strings.Cut(long, "=")
		f := flags.Lookup(name)
		switch {
		case f == nil:
			return nil, true
		case inside || f.NoOptDefVal != "":
			return &no, true
		}
		return &yes, true
	}
	if len(word) < 2 || word[0] != '-' || word[1] == '-' {
		return nil, false
	}
	for i := 1; i < len(word); i++ {
		f := flags.ShorthandLookup(word[i : i+1])
		switch {
		case f == nil:
			return nil, true
		case f.NoOptDefVal == "" && i+1 < len(word):
			return &no, true // -w5
		case f.NoOptDefVal == "":
			return &yes, true
		}
	}
	return &no, true
}
