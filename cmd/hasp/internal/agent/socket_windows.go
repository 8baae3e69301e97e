// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net"
	"os"

	"github.com/hasplock/hasp/driver"
)

func (a *agent) socket() (net.Listener, error) {
	return nil, errors.New("--listen is not for Windows, which does not tell the user of a connection: let each program start hasp agent --stdio")
}

func (a *agent) peer(net.Conn) (*driver.Label, error) { return nil, errors.ErrUnsupported }

func parent() *driver.Label { return nil }

func standard() streams { return streams{os.Stdin, os.Stdout, func() { _ = os.Stdin.Close() }, false} }

func ready() {}
