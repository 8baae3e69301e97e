// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
	"sigs.k8s.io/yaml"
)

const runbooks = "../docs/operations.md"

// alert is one of prometheus/rules.yaml.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	read(t, "prometheus/rules.yaml", &file)
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 14 {
		t.Fatalf("%d alerts", len(all))
	}
	return all
}

// read reads a file of YAML or JSON.
func read(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	if err := yaml.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

var ruleTests = []string{"rules_test.yaml", "hours_test.yaml"}

// The rules say what their tests have of them, in the eyes of Prometheus itself.
func TestRules(t *testing.T) {
	testserver.Require(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, append([]string{"test", "rules"}, ruleTests...)} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert is seen to fire, with its labels and its texts, and not to fire.
func TestEachAlertFiresAndDoesNot(t *testing.T) {
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert  string `json:"alertname"`
				Expect []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	seen := map[string]bool{} // "NAME fires: true"
	for _, name := range ruleTests {
		file.Tests = nil
		read(t, "prometheus/"+name, &file)
		for _, test := range file.Tests {
			for _, c := range test.Cases {
				seen[fmt.Sprint(c.Alert, " fires: ", len(c.Expect) > 0)] = true
			}
		}
	}
	for _, a := range alerts(t) {
		for _, want := range []string{a.Alert + " fires: true", a.Alert + " fires: false"} {
			if !seen[want] {
				t.Errorf("no test says that %s", want)
			}
		}
	}
}

// Each alert leads to its runbook, and there is none for an alert that is gone.
func TestRunbooks(t *testing.T) {
	b, err := os.ReadFile(runbooks)
	must(t, err)
	sections := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^#+ `).Split(string(b), -1) {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}
	for _, a := range alerts(t) {
		section, ok := sections[a.Alert]
		if !ok {
			t.Errorf("%s has no section %q", runbooks, a.Alert)
		}
		for _, part := range []string{"**Means.**", "**Look.**", "**Do.**", "**Do not.**"} {
			if ok && !strings.Contains(section, part) {
				t.Errorf("%s, section %s, has no %s", runbooks, a.Alert, part)
			}
		}
		delete(sections, a.Alert)
		if url := a.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/operations.md#"+strings.ToLower(a.Alert)) {
			t.Errorf("%s leads to %q", a.Alert, url)
		}
		for _, text := range []string{a.Annotations["summary"], a.Annotations["description"]} {
			if text == "" {
				t.Errorf("%s lacks a text", a.Alert)
			}
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", a.Alert, s)
		}
	}
	for title := range sections {
		if strings.HasPrefix(title, "Hasp") {
			t.Errorf("%s has a runbook for %s, which is no alert", runbooks, title)
		}
	}
}
