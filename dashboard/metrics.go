// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// inventory is /metrics without Options.Metrics: how many keys the store has, in the text
// format of Prometheus. No series is named after a key.
func (s *server) inventory(w http.ResponseWriter, r *http.Request) {
	snap, err := s.poller.fresh(r.Context())
	if snap == nil {
		snap = newSnapshot(nil)
		snap.err = err
	}
	waited, foreign, endless, oldest := 0, 0, 0, time.Time{}
	for _, e := range snap.entries {
		if e.Waiters > 0 {
			waited++
		}
		if e.Holder.Foreign {
			foreign++
		}
		if e.Held && e.Left < 0 {
			endless++
		}
		if t := since(e.Holder); e.Held && last(t, oldest) < 0 {
			oldest = t
		}
	}
	up := 1
	if snap.err != nil {
		up = 0
	}
	var b bytes.Buffer
	gauge := func(name, help string, value any) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s %v\n", name, help, name, name, value)
	}
	gauge("hasp_inventory_up", "1 when the latest list of the store succeeded.", up)
	if !snap.at.IsZero() { // a key may count as several, so these are no labels of one metric: their sum says nothing
		gauge("hasp_inventory_held_keys", "Keys that are held.", snap.held)
		gauge("hasp_inventory_waited_keys", "Keys that somebody waits for.", waited)
		gauge("hasp_inventory_foreign_keys", "Keys that are held by another program than hasp.", foreign)
		gauge("hasp_inventory_endless_keys", "Keys that are held without an expiry.", endless)
		gauge("hasp_inventory_waiters", "Waiters of all keys.", snap.waiters)
		gauge("hasp_inventory_list_timestamp_seconds", "When the store was last listed.", seconds(snap.at.UnixMilli()))
	}
	if ms := millis(oldest); ms > 0 {
		gauge("hasp_inventory_oldest_hold_start_timestamp_seconds", "When the oldest lease began.", seconds(ms))
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// seconds writes a time as Prometheus wants it, without an exponent.
func seconds(ms int64) string { return fmt.Sprintf("%d.%03d", ms/1000, ms%1000) }
