// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/hasplock/hasp/driver"
)

// A key is any bytes, and a path is not: proxies take %2F for /, and clean .. and //. So in
// a path and in a query a key is its base64url without padding (RFC 4648, section 5).
var pathKey = base64.RawURLEncoding.Strict()

// encodeKey returns a key as it stands in a path.
func encodeKey(key string) string { return pathKey.EncodeToString([]byte(key)) }

var errKey = errors.New("this is no key: a key is 1 to 512 bytes, written as base64url without padding")

// decodeKey is the inverse of encodeKey: there is one way to write each key.
func decodeKey(s string) (string, error) {
	if strings.ContainsAny(s, "\r\n") { // which encoding/base64 would skip
		return "", errKey
	}
	b, err := pathKey.DecodeString(s)
	if err != nil || driver.CheckKey(string(b)) != nil {
		return "", errKey
	}
	return string(b), nil
}
