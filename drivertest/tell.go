// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var tellCases = []Case{
	{Name: "BrokenLeaseIsTold",
		Rule:  "A Teller reports a lease that was renewed once and that another client released in its owner's name: with its owner, its label and its fence.",
		Needs: []Need{needTeller}, run: brokenLeaseIsTold},
	{Name: "OnlyEndedLeasesAreTold",
		Rule:  "A Teller reports neither what its own client released or never had, nor a lease that stands.",
		Needs: []Need{needTeller}, run: onlyEndedLeasesAreTold},
}

var needTeller = Need{"driver.Teller", func(d driver.Driver) bool { _, ok := d.(driver.Teller); return ok }}

// report is what a Teller reports.
type report struct {
	id    driver.ID
	fence uint64
}

// hears opens a client, and returns what it reports.
func (e *env) hears() (driver.Driver, <-chan report) {
	heard := make(chan report, 16)
	d := e.open()
	d.(driver.Teller).Tell(func(id driver.ID, fence uint64) { heard <- report{id, fence} })
	return d, heard
}

// next returns the next report.
func (e *env) next(heard <-chan report) report {
	e.Helper()
	select {
	case got := <-heard:
		return got
	case <-time.After(e.slack + e.lost()):
		e.Fatalf("nothing was reported")
		return report{}
	}
}

func brokenLeaseIsTold(e *env) {
	for _, a := range []contend.Owner{e.ask("k"), e.ask("a\x00\xff")} {
		d, heard := e.hears()
		res := e.grant(d, a)
		e.renewed(d, a)
		e.release(e.d, a)
		if got, want := e.next(heard), (report{a.Claim().ID(), res.Fence}); got != want {
			e.Errorf("reported %+v, want %+v", got, want)
		}
		e.renewNothing(d, a)
	}
}

func onlyEndedLeasesAreTold(e *env) {
	d, heard := e.hears()
	own, stands, others, refused, broken := e.ask("own"), e.ask("stands"), e.ask("others"), e.ask("stands"), e.ask("broken")
	e.grant(d, own)
	e.release(d, own)
	e.grant(d, stands)
	e.refuse(d, refused)
	e.releaseNothing(e.d, refused)
	e.renewed(d, stands)
	e.grant(e.d, others)
	e.release(e.d, others)
	e.grant(d, broken)
	e.renewed(d, broken)
	e.release(e.d, broken)
	if got := e.next(heard); got.id != broken.Claim().ID() {
		e.Errorf("reported %+v, want only the end of %q", got, broken.Key)
	}
	e.renewed(d, stands)
}
