// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package audit

import (
	"errors"
	"log/syslog"
)

// dial connects to the system's log. Tests have one of their own.
var dial = func() (*syslog.Writer, error) {
	return syslog.New(syslog.LOG_NOTICE|syslog.LOG_AUTHPRIV, "hasp")
}

func trySyslog() error {
	w, err := dial()
	if err != nil {
		return err
	}
	return w.Close()
}

// toSyslog connects for each record: a log that was restarted gets the next one.
func toSyslog(line []byte) error {
	w, err := dial()
	if err != nil {
		return err
	}
	_, err = w.Write(line)
	return errors.Join(err, w.Close())
}
