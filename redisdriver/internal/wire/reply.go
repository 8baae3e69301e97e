// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Reply reads a script's answer field by field, and remembers whether one was
// missing or of another kind.
type Reply struct {
	Fields []any
	Bad    bool
}

// NewReply returns the reader of an answer.
func NewReply(v any) *Reply {
	fields, ok := v.([]any)
	return &Reply{Fields: fields, Bad: !ok}
}

// Next returns the next field, or the zero value where it is missing or of another type.
func Next[T any](r *Reply) (v T) {
	ok := false
	if len(r.Fields) > 0 {
		v, ok = r.Fields[0].(T)
		r.Fields = r.Fields[1:]
	}
	r.Bad = r.Bad || !ok
	return v
}
