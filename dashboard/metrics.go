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
	gauge := func(name, help string, values ...any) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
		for i := 0; i < len(values); i += 2 {
			fmt.Fprintf(&b, "%s%s %v\n", name, values[i], values[i+1])
		}
	}
	gauge("hasp_inventory_up", "1 when the latest list of the store succeeded.", "", up)
	if !snap.at.IsZero() {
		gauge("hasp_inventory_keys", "Keys of the store by state; a key may have several.",
			`{state="held"}`, snap.held, `{state="waited"}`, waited, `{state="foreign"}`, foreign, `{state="endless"}`, endless)
		gauge("hasp_inventory_waiters", "Waiters of all keys.", "", snap.waiters)
		gauge("hasp_inventory_list_timestamp_seconds", "When the store was last listed.", "", seconds(snap.at.UnixMilli()))
	}
	if ms := millis(oldest); ms > 0 {
		gauge("hasp_inventory_oldest_hold_start_timestamp_seconds", "When the oldest lease began.", "", seconds(ms))
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// seconds writes a time as Prometheus wants it, without an exponent.
func seconds(ms int64) string { return fmt.Sprintf("%d.%03d", ms/1000, ms%1000) }
