// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What Prometheus and Grafana read is what the mixin says.
func TestRenderedFilesAreFresh(t *testing.T) {
	for path := range rendered {
		want, err := render(".", path)
		must(t, err)
		got, err := os.ReadFile(path)
		must(t, err)
		if string(got) != want {
			t.Errorf("%s is not what the mixin makes: go run ./deploy", path)
		}
	}
}

// The configuration changes every query, as config.libsonnet says.
func TestConfiguration(t *testing.T) {
	text, err := vmIn(".").EvaluateAnonymousSnippet("override", `
		local m = (import 'mixin.libsonnet') + { _config+:: { selector: 'cluster="eu"', waitSeconds: 5, longHeldClasses: 'nightly|backup',
			lateJobs: 'key!="weekly"', lateJobHours: 2, heldHours: 0 } };
		[m.prometheusAlerts, m.grafanaDashboards]`)
	must(t, err)
	metrics := regexp.MustCompile(`distributed_lock_\w+.{0,13}`).FindAllString(text, -1)
	if len(metrics) < 40 {
		t.Errorf("only %d metrics are asked for", len(metrics))
	}
	for _, m := range metrics {
		if !strings.Contains(m, `{cluster=\"eu`) {
			t.Errorf("selects without the selector: %s", m)
		}
	}
	for _, want := range []string{`> 5"`, `cluster=\"eu\", class!~\"nightly|backup\"`, `hasp_job_last_busy{key!=\"weekly\"} == 1`, `offset 7200s`} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing rendered has %s", want)
		}
	}
}
