// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspprom_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/telemetry"
	haspprom "github.com/hasplock/hasp/telemetry/prometheus"
)

// The tables of docs/metrics.md list the metrics and reasons that there are, and no others.
func TestDocumentedMetrics(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	must(t, err)
	documented := map[string]string{}
	code := regexp.MustCompile("`([a-z_]+)`")
	for _, m := range regexp.MustCompile("(?m)^\\| `(distributed_lock_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		more := ""
		if label := code.FindStringSubmatch(m[3]); label != nil {
			more = label[1]
		}
		documented[m[1]] = m[2] + " " + more
	}
	exposed := map[string]string{}
	for _, f := range families(t, haspprom.New(&haspprom.Options{Engine: "memory", Classes: []string{"a"}})) {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() != "engine" && l.GetName() != "class" {
				labels = append(labels, l.GetName())
			}
		}
		exposed[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, " ")
	}
	if len(exposed) == 0 || !maps.Equal(documented, exposed) {
		t.Errorf("docs/metrics.md has %v, and exposed are %v", documented, exposed)
	}
	_, reasons, _ := strings.Cut(string(text), "### Reasons")
	reasons, _, _ = strings.Cut(reasons, "\n## ")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(reasons, -1) {
		listed = append(listed, m[1])
	}
	if !slices.Equal(listed, telemetry.Reasons()) {
		t.Errorf("docs/metrics.md has the reasons %v, there are %v", listed, telemetry.Reasons())
	}
}
