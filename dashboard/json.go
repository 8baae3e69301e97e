// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/people"
)

// The objects of the API are those of hasp ls and hasp show with -o json, with an id. More
// fields may come.

// problem is the answer to a request that failed.
type problem struct {
	Error string   `json:"error"`
	Now   *keyJSON `json:"now,omitempty"` // how the key is held instead
}

type keyJSON struct {
	ID string `json:"id"` // the key as it stands in a path
	people.KeyJSON
}

func toKeyJSON(i hasp.Info) *keyJSON {
	k := &keyJSON{encodeKey(i.Key), people.ToKeyJSON(i)}
	k.ByHand, k.Free = i.LookCommands, i.FreeCommands
	return k
}

// encodeJSON returns v in one line. encoding/json escapes what HTML acts on, but leaves what
// a terminal does (C1, DEL) and what turns text around: here they are \u escapes.
func encodeJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil { // nothing in our types can be refused
		panic(err)
	}
	b := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch { // nothing but ASCII that can be printed stands outside of strings
		case unicode.IsPrint(r):
			b = append(b, raw[:size]...)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
		raw = raw[size:]
	}
	return b
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(encodeJSON(v), '\n'))
}
