// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// configError is a configuration that cannot work.
type configError struct{ why string }

func (e *configError) Error() string { return "zookeeper: " + e.why }

// LayoutError reports a key with a directory that another program uses in a way that this driver's
// [Layout] does not exclude. Nothing was changed.
type LayoutError struct {
	Path string // of the other program's node
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("zookeeper: the node %q is of a kind of lock that does not see those of this driver's layout: set Options.Layout to what the other program uses", e.Path)
}

// stranger is the error of a key with a node of a program that this one must not take turns with.
func stranger(path string, n recipe.Node) error {
	if n.Newer > 0 {
		return &configError{fmt.Sprintf("the node %q was written by a newer hasp (layout %d, this build knows %d): upgrade this program", path, n.Newer, recipe.Version)}
	}
	return &LayoutError{path}
}

func absent(err error) bool { return errors.Is(err, zk.ErrNoNode) }

var errOvertaken = errors.New("zookeeper: others changed the key's nodes again and again while this looked at them")

// unsent marks the error of a Try that was not sent.
func unsent(err error) error {
	if zk.IsUnsent(err) {
		return driver.NotSent(err)
	}
	return err
}

// Classify implements [driver.Driver].
func (d *Driver) Classify(err error) driver.Class {
	var config *configError
	var layout *LayoutError
	var code zk.Code
	var network net.Error
	switch {
	case errors.As(err, &layout), errors.Is(err, driver.ErrUnsupported):
		return driver.ClassImpossible
	case errors.As(err, &config):
		return driver.ClassMisconfigured
	case errors.As(err, &code):
		return classes[code]
	case errors.Is(err, zk.ErrUnreachable), errors.Is(err, zk.ErrLost), errors.Is(err, zk.ErrEnded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &network):
		return driver.ClassUnreachable
	}
	return driver.ClassUnknown
}

// classes of codes; those that are not here are ClassUnknown.
var classes = map[zk.Code]driver.Class{
	zk.ErrNoAuth:         driver.ClassDenied,
	zk.ErrAuthFailed:     driver.ClassLogin,
	zk.ErrInvalidACL:     driver.ClassDenied,
	zk.ErrQuotaExceeded:  driver.ClassFull,
	zk.ErrNotReadOnly:    driver.ClassReadOnly,
	zk.ErrUnimplemented:  driver.ClassMisconfigured,
	zk.ErrWantsSASL:      driver.ClassMisconfigured,
	zk.ErrSessionExpired: driver.ClassUnreachable,
}
