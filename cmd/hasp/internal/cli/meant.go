// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/spf13/cobra"
)

// others are commands that hasp has under another name, or does not need.
var others = map[string]string{
	"status": "hasp show KEY shows everything about one key, hasp ls lists the keys",
	"ps":     "hasp ls lists keys and who holds them",
	"lock":   "hasp run KEY -- COMMAND holds a key while a command runs",
	"exec":   "hasp run KEY -- COMMAND holds a key while a command runs",
	"unlock": "hasp release KEY for what hasp acquire holds; hasp run releases a key when its command ends; hasp break KEY --owner OWNER takes it from another",
	"watch":  "hasp top shows the keys live",
}

func init() {
	if runtime.GOOS != "linux" {
		for _, name := range []string{"acquire", "held", "release"} {
			others[name] = "that needs Linux; hasp run KEY -- COMMAND holds a key while a command runs"
		}
	}
}

// meant returns the command that was probably meant, after a colon; or nothing.
func meant(root *cobra.Command, word string) string {
	if text := others[strings.ToLower(word)]; text != "" {
		return ": " + text
	}
	if names := root.SuggestionsFor(word); len(names) > 0 {
		return ": did you mean hasp " + strings.Join(names, ", hasp ") + "?"
	}
	return ""
}

// newStores is a topic of hasp help.
func newStores() *cobra.Command {
	return &cobra.Command{Use: "store", Short: "How a store is named", Long: store.Help}
}
