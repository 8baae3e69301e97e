// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// split returns the keys and the command of hasp run, or of hasp elect: each key
// once, in the order given. args are the words after "hasp", words what is left
// of them without flags.
//
// "--" must stand between the two: without it, flags of the command would be
// taken for hasp's, today or with the next flag that hasp gets.
func split(cmd *cobra.Command, args, words []string) (keys, command []string, err error) {
	like := "hasp " + cmd.Name() + " KEY -- COMMAND"
	dash := cmd.ArgsLenAtDash()
	if dash == 0 { // -- -KEY [KEY...] -- COMMAND: a key that looks like a flag
		if at := slices.Index(words, "--"); at == 1 || at > 1 && strings.HasPrefix(words[0], "-") {
			words = slices.Delete(slices.Clone(words), at, at+1)
			dash = at
		}
	}
	switch {
	case len(words) == 0:
		return nil, nil, base.Usage("the key and the command are missing: %s", like)
	case dash == 0:
		return nil, nil, base.Usage("the key is missing: %s", like)
	case dash < 0:
		line, ok := corrected(cmd.Flags(), args)
		if !ok {
			return nil, nil, base.Usage("the command is missing: %s", like)
		}
		return nil, nil, base.Usage("between KEY and COMMAND there must be a --. Did you mean:\n  %s", line)
	case len(words) == dash:
		return nil, nil, base.Usage("the command is missing after --: %s", like)
	}
	keys, err = base.Distinct(words[:dash])
	return keys, words[dash:], err
}

// corrected returns the command line with -- before the command, where it can
// be told which word that is.
func corrected(flags *pflag.FlagSet, args []string) (string, bool) {
	run, key := false, false
	for i := 0; i < len(args); i++ {
		takes, flag := value(flags, args[i])
		switch {
		case args[i] == "--", flag && takes == nil:
			return "", false
		case flag && *takes:
			i++
		case flag:
		case !run: // the word "run" itself
			run = true
		case !key:
			key = true
		default:
			return shell.Join(append([]string{"hasp"}, slices.Insert(unsecret(flags, args), i, "--")...)...), true
		}
	}
	return "", false
}

// unsecret returns the command line without a URL that may hold a password.
func unsecret(flags *pflag.FlagSet, args []string) []string {
	line := slices.Clone(args)
	for i := 0; i < len(line); i++ {
		takes, flag := value(flags, line[i])
		switch name, text, inside := strings.Cut(line[i], "="); {
		case line[i] == "--":
			return line
		case inside && name == "--store":
			line[i] = name + "=" + base.Public(text)
		case flag && takes != nil && *takes:
			if i++; i < len(line) && name == "--store" {
				line[i] = base.Public(line[i])
			}
		}
	}
	return line
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
