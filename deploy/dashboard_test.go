// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

var (
	drawInto = flag.String("draw", "", "draw the dashboard into this file, as SVG, once a longer run, of two minutes, was scraped")
	// limit bounds every wait for an event. It is for a machine under load.
	limit = 2 * time.Minute
)

// patience is how many scrapes a query may stay without an answer.
const patience = 60

// counters are the metrics that stay at 0 while all is well. A run counts in each of them.
var counters = []string{
	`wait_seconds_count{outcome="acquired"}`, `wait_seconds_count{outcome="failed"}`, `failures_total{reason="held"}`, `failures_total{reason="timeout"}`,
	`renewals_total{result="ok"}`, `renewals_total{result="failed"}`, "renewal_age_ratio_count", "handoff_seconds_count", "held_seconds_count",
	"losses_total", "forgotten_total", "release_failures_total", "store_errors_total", "held_back_total",
}

// dashboard is what the tests need of grafana/hasp.json.
type dashboard struct {
	Title      string  `json:"title"`
	UID        string  `json:"uid"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit       string `json:"unit"`
			Thresholds struct {
				Steps []struct {
					Value *float64 `json:"value"`
				} `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

type variable struct {
	Name  string          `json:"name"`
	Type  string          `json:"type"`
	Query json.RawMessage `json:"query"`
}

// filled puts the values of the dashboard's variables into a query.
func filled(query string) string {
	return strings.NewReplacer("$__rate_interval", "20s", "$__range", "1m", "$job", ".*", "$engine", ".*", "$class", ".*").Replace(query)
}

// The dashboard can be provisioned as well as imported, and says what each panel is.
func TestDashboardIsComplete(t *testing.T) {
	var d dashboard
	read(t, "grafana/hasp.json", &d)
	b, err := os.ReadFile("grafana/hasp.json")
	must(t, err)
	if d.UID == "" || strings.Contains(string(b), "__inputs") {
		t.Error("no uid, or inputs, which are for an import by hand only")
	}
	if fixed := regexp.MustCompile(`"uid": "[^"]*"`).FindAllString(string(b), -1); len(fixed) < 2 {
		t.Errorf("%d data sources", len(fixed))
	} else {
		for _, uid := range fixed {
			if uid != `"uid": "${datasource}"` && uid != `"uid": "`+d.UID+`"` {
				t.Errorf("a data source that only one Grafana has: %s", uid)
			}
		}
	}
	covered := map[[2]int]string{}
	for _, p := range d.Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := covered[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies over %q, or beyond the edge", p.Title, other)
				}
				covered[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0) {
			t.Errorf("%q lacks a description, a unit or a query", p.Title)
		}
		for _, q := range p.Targets {
			if strings.Contains(q.Expr, "rate(") && !strings.Contains(q.Expr, "[$__rate_interval]") {
				t.Errorf("%q: %s has an interval of its own", p.Title, q.Expr)
			}
		}
	}
}

// Every query of the dashboard, and every rule, has an answer from a Prometheus that scrapes a run.
func TestQueries(t *testing.T) {
	var d dashboard
	read(t, "grafana/hasp.json", &d)
	p := scraping(t)
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			p.answers(t, panel.Title, q.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		if _, err := p.query(t.Context(), filled(a.Expr)); err != nil {
			t.Errorf("annotation %s: %v", a.Expr, err)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			p.values(t, v)
		}
	}
	for _, counter := range counters {
		p.answers(t, "the run", "sum(distributed_lock_"+counter+") > 0")
	}
	p.rulesWork(t)
	if *drawInto != "" {
		p.draws(t, &d)
	}
}

// scraper is a Prometheus and what it scrapes.
type scraper struct {
	url     string
	began   time.Time
	scrapes chan struct{} // one for each
}

// scraping starts a Prometheus that has seen some seconds of the source.
func scraping(t *testing.T) *scraper {
	pace := 1
	if *drawInto != "" {
		pace = 10
	}
	serve := source(t, pace)
	scrapes := make(chan struct{}, 10_000)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve.ServeHTTP(w, r)
		scrapes <- struct{}{}
	}))
	t.Cleanup(target.Close)
	rules, err := filepath.Abs("prometheus/rules.yaml")
	must(t, err)
	server := testserver.Prometheus(t, fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: shop
  static_configs: [{targets: [%q]}]
`, rules, target.Listener.Addr()))
	p := &scraper{url: "http://" + server.Addr(), began: time.Now(), scrapes: scrapes}
	p.await(t, 5)
	return p
}

// await returns after n more scrapes.
func (p *scraper) await(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-p.scrapes:
		case <-time.After(limit):
			t.Fatal("Prometheus does not scrape")
		}
	}
}

// answer is the result of one series: its labels, and its points.
type answer struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
	Values [][2]any          `json:"values"`
}

func (p *scraper) query(ctx context.Context, expr string) ([]answer, error) {
	return p.get(ctx, "query", url.Values{"query": {expr}})
}

func (p *scraper) get(ctx context.Context, path string, values url.Values) ([]answer, error) {
	var data struct {
		Result []answer `json:"result"`
	}
	return data.Result, p.ask(ctx, path, values, &data)
}

func (p *scraper) ask(ctx context.Context, path string, values url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var body struct {
		Error string          `json:"error"`
		Data  json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return err
	}
	if body.Error != "" {
		return fmt.Errorf("Prometheus says: %s", body.Error)
	}
	return json.Unmarshal(body.Data, into)
}

// answers fails the test when a query is wrong, or still empty after many scrapes.
func (p *scraper) answers(t *testing.T, title, expr string) {
	t.Helper()
	for range patience {
		got, err := p.query(t.Context(), filled(expr))
		if err != nil {
			t.Errorf("%s: %s: %v", title, expr, err)
			return
		}
		if len(got) > 0 && got[0].Value[1] != "NaN" {
			return
		}
		p.await(t, 1)
	}
	t.Errorf("%s: %s has no answer", title, expr)
}

// values fails the test when a variable has no values to choose from.
func (p *scraper) values(t *testing.T, v variable) {
	t.Helper()
	var query struct {
		Query string `json:"query"`
	}
	must(t, json.Unmarshal(v.Query, &query))
	m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(filled(query.Query))
	if m == nil || m[2] != v.Name {
		t.Fatalf("variable %s: %s", v.Name, query.Query)
	}
	var got []string
	if err := p.ask(t.Context(), "label/"+m[2]+"/values", url.Values{"match[]": {m[1]}}, &got); err != nil || len(got) == 0 {
		t.Errorf("variable %s has the values %q, %v", v.Name, got, err)
	}
}

// rulesWork fails the test when a rule was not evaluated, or with an error.
func (p *scraper) rulesWork(t *testing.T) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError string
			} `json:"rules"`
		} `json:"groups"`
	}
	for range patience {
		must(t, p.ask(t.Context(), "rules", nil, &data))
		known := 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Errorf("%s: %s", r.Name, r.LastError)
				}
				if r.Health != "unknown" {
					known++
				}
			}
		}
		if known == len(alerts(t)) {
			return
		}
		p.await(t, 1)
	}
	t.Errorf("not all rules were evaluated: %+v", data)
}

// span is what a range query returns of one series.
type span struct {
	name   string
	points [][2]float64 // seconds since the beginning, and the value
}

// spans returns the series of a panel over the whole run.
func (p *scraper) spans(t *testing.T, panel panel) []span {
	t.Helper()
	var all []span
	for _, q := range panel.Targets {
		got, err := p.get(t.Context(), "query_range", url.Values{
			"query": {filled(q.Expr)}, "step": {"1"},
			"start": {strconv.FormatInt(p.began.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix(), 10)},
		})
		must(t, err)
		for _, a := range got {
			s := span{name: regexp.MustCompile(`{{(\w+)}}`).ReplaceAllStringFunc(q.Legend, func(m string) string { return a.Metric[strings.Trim(m, "{}")] })}
			for _, v := range a.Values {
				text, _ := v[1].(string)
				at, _ := v[0].(float64)
				if y, err := strconv.ParseFloat(text, 64); err == nil {
					s.points = append(s.points, [2]float64{at - float64(p.began.Unix()), y})
				}
			}
			all = append(all, s)
		}
	}
	return all
}
