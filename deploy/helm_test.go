// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

const chart = "helm/hasp"

// object is one of Kubernetes.
type object map[string]any

// at returns what is under a path of names, and of numbers in lists; nil when there is nothing.
func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, p := range path {
		switch in := v.(type) {
		case map[string]any:
			name, _ := p.(string)
			v = in[name]
		case []any:
			i, ok := p.(int)
			if !ok || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// rendersChart does with the templates what helm does, with these values over the chart's own.
func rendersChart(t *testing.T, values string) (map[string]object, error) {
	t.Helper()
	var all, over map[string]any
	read(t, chart+"/values.yaml", &all)
	must(t, yaml.Unmarshal([]byte(values), &over))
	meta := metaOf(t)
	data := map[string]any{
		"Values":  merged(all, over),
		"Release": map[string]any{"Name": "locks", "Namespace": "shop", "Service": "Helm"},
		"Chart":   map[string]any{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]},
	}
	data["Subcharts"] = map[string]any{"hasp": map[string]any{"Chart": data["Chart"]}} // as the chart that has this one sees it
	data["Values"] = merged(merged(all, over), map[string]any{"hasp": data["Values"]})
	tmpl := template.New("")
	tmpl.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := tmpl.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			b, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(b), "\n"), err
		},
		"required": func(what string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(what)
			}
			return v, nil
		},
	})
	files, err := filepath.Glob(chart + "/templates/*")
	if err != nil || len(files) < 5 {
		t.Fatalf("templates %q, %v", files, err)
	}
	if _, err := tmpl.ParseFiles(files...); err != nil {
		t.Fatal(err)
	}
	helper, err := os.ReadFile(chart + "/templates/_agent.tpl")
	must(t, err)
	_, example, _ := strings.Cut(string(helper), "\n\n")
	example, _, _ = strings.Cut(example, "*/")
	template.Must(tmpl.New("example.yaml").Parse("kind: example\nspec:\n" + example))
	objects := map[string]object{}
	for _, file := range append(files, "example.yaml") {
		name := filepath.Base(file)
		var b bytes.Buffer
		if err := tmpl.ExecuteTemplate(&b, name, data); err != nil {
			return nil, err
		}
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		var o object
		if err := yaml.UnmarshalStrict(b.Bytes(), &o); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b.String())
		}
		if len(o) > 0 {
			kind, _ := o["kind"].(string)
			if name == "app.yaml" {
				kind = "app"
			}
			objects[kind] = o
		}
	}
	return objects, nil
}

// merged returns a with b over it, as helm merges values.
func merged(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	for name, v := range b {
		below, isMap := all[name].(map[string]any)
		over, both := v.(map[string]any)
		if isMap && both {
			v = merged(below, over)
		}
		all[name] = v
	}
	return all
}

const everything = `
hosts: [locks.example.com]
extraArgs: [--break-subject, oncall]
tls: {secret: hasp-tls, clientCA: ca.crt}
serviceMonitor: {enabled: true, token: {secret: prometheus-token}, labels: {release: prometheus}}
networkPolicy: {from: [{namespaceSelector: {}}], to: [{ipBlock: {cidr: 10.0.0.0/8}}], storePorts: [2379, 2380]}
podLabels: {team: shop}
podAnnotations: {note: x}
nodeSelector: {disk: ssd}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
imagePullSecrets: [{name: pull}]
service: {annotations: {a: b}}
image: {tag: v1.2.3}
app: {image: "shop:1"}
`

// The pod may do nothing that it need not, and its secrets are files.
func TestChartIsConfined(t *testing.T) {
	for _, values := range []string{"", everything} {
		objects, err := rendersChart(t, values)
		must(t, err)
		pod := func(path ...any) any {
			return objects["Deployment"].at(append([]any{"spec", "template", "spec"}, path...)...)
		}
		container := func(path ...any) any { return pod(append([]any{"containers", 0}, path...)...) }
		for what, is := range map[string]bool{
			"no root":                   pod("securityContext", "runAsNonRoot") == true,
			"a seccomp profile":         pod("securityContext", "seccompProfile", "type") == "RuntimeDefault",
			"no API token":              pod("automountServiceAccountToken") == false,
			"a read-only root":          container("securityContext", "readOnlyRootFilesystem") == true,
			"no more privileges":        container("securityContext", "allowPrivilegeEscalation") == false,
			"no capabilities":           container("securityContext", "capabilities", "drop", 0) == "ALL",
			"a limit of memory":         container("resources", "limits", "memory") == "256Mi",
			"the store from its secret": container("env", 0, "name") == "HASP_STORE" && container("env", 0, "valueFrom", "secretKeyRef", "name") == "hasp-store",
			"tokens from their secret":  pod("volumes", 1, "secret", "secretName") == "hasp-tokens" && pod("volumes", 1, "secret", "items", 0, "key") == "tokens",
			"a network policy":          objects["NetworkPolicy"].at("spec", "egress", 1, "ports", 0, "port") != nil,
			"a selector that fits":      objects["Service"].at("spec", "selector", "app.kubernetes.io/instance") == "locks",
		} {
			if !is {
				t.Errorf("with the values %q there is not %s", values, what)
			}
		}
	}
}

// What is asked for becomes a flag of hasp serve, with the file that is mounted for it.
func TestChartStartsServe(t *testing.T) {
	for _, c := range []struct{ values, args, scheme string }{
		{"", "serve --listen :8390 --tokens /run/secrets/hasp/tokens/tokens", "HTTP"},
		{"{tokens: {secret: ''}, tls: {secret: s, clientCA: ca.crt}}", "serve --listen :8390 --tls-cert /run/secrets/hasp/tls/tls.crt " +
			"--tls-key /run/secrets/hasp/tls/tls.key --client-ca /run/secrets/hasp/tls/ca.crt", "HTTPS"},
		{"{tls: {secret: s}, listen: {port: 8443}, hosts: [a, b], extraArgs: [-v]}", "serve --listen :8443 --tokens /run/secrets/hasp/tokens/tokens " +
			"--host a --host b --tls-cert /run/secrets/hasp/tls/tls.crt --tls-key /run/secrets/hasp/tls/tls.key -v", "HTTPS"},
	} {
		objects, err := rendersChart(t, c.values)
		must(t, err)
		container := objects["Deployment"].at("spec", "template", "spec", "containers", 0)
		o, _ := container.(map[string]any)
		var args []string
		list, _ := o["args"].([]any)
		for _, a := range list {
			s, _ := a.(string)
			args = append(args, s)
		}
		if got := strings.Join(args, " "); got != c.args {
			t.Errorf("with %s it runs hasp %s", c.values, got)
		}
		for _, probe := range []string{"livenessProbe", "readinessProbe"} {
			if got := object(o).at(probe, "httpGet", "scheme"); got != c.scheme {
				t.Errorf("with %s the %s speaks %v, not %s", c.values, probe, got, c.scheme)
			}
		}
		mounts, _ := o["volumeMounts"].([]any)
		var at []string
		for _, m := range mounts {
			m, _ := m.(map[string]any)
			path, _ := m["mountPath"].(string)
			at = append(at, path)
		}
		for _, a := range args {
			if strings.HasPrefix(a, "/run") && !slices.Contains(at, filepath.Dir(a)) {
				t.Errorf("with %s nothing is mounted for %s", c.values, a)
			}
		}
	}
}

// The agent is a native sidecar: an init container that stays, so that the kubelet starts it before the program and ends it after it. Both see
// the socket, and only the agent has the store's URL.
func TestChartHasTheAgent(t *testing.T) {
	objects, err := rendersChart(t, "")
	must(t, err)
	if objects["app"] != nil {
		t.Error("there is a program that nobody asked for")
	}
	objects, err = rendersChart(t, "{app: {image: 'shop:1', args: [-v]}}")
	must(t, err)
	var pod object = objects["app"].at("spec", "template", "spec").(map[string]any) //nolint:forcetypeassert // a panic says where
	for path, want := range map[[2]string]any{
		{"initContainers", "name"}: "hasp-agent", {"initContainers", "restartPolicy"}: "Always", {"initContainers", "image"}: "ghcr.io/hasplock/hasp:" + fmt.Sprint(metaOf(t)["appVersion"]),
		{"containers", "image"}: "shop:1", {"volumes", "name"}: "hasp-agent",
	} {
		if got := pod.at(path[0], 0, path[1]); got != want {
			t.Errorf("%s of %s is %v, want %v", path[1], path[0], got, want)
		}
	}
	if got := fmt.Sprint(pod.at("initContainers", 0, "args")); got != "[agent --listen unix:/run/hasp/agent.sock]" {
		t.Errorf("the agent's arguments are %s", got)
	}
	for _, c := range []string{"initContainers", "containers"} {
		if got := fmt.Sprint(pod.at(c, 0, "volumeMounts")); got != "[map[mountPath:/run/hasp name:hasp-agent]]" {
			t.Errorf("%s mount %s", c, got)
		}
		if got := pod.at(c, 0, "securityContext", "readOnlyRootFilesystem"); got != true {
			t.Errorf("%s are not confined", c)
		}
	}
	for _, part := range []string{"initContainers", "volumes"} {
		if got, want := objects["example"].at("spec", part), pod.at(part); !reflect.DeepEqual(got, want) {
			t.Errorf("in a chart of one's own the %s are %v, want %v", part, got, want)
		}
	}
	if env := fmt.Sprint(pod.at("containers", 0, "env")); env != "[map[name:HASP_AGENT value:unix:/run/hasp/agent.sock]]" {
		t.Errorf("the program has the environment %s", env)
	}
}

func metaOf(t *testing.T) (meta map[string]any) {
	read(t, chart+"/Chart.yaml", &meta)
	return meta
}

// Values with which hasp serve would not start are refused.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"{tokens: {secret: ''}}":                       "refuses to listen beyond loopback",
		"{tokens: {secret: ''}, tls: {secret: 'tls'}}": "refuses to listen beyond loopback",
		"{store: {secret: ''}}":                        "store.secret",
	} {
		if _, err := rendersChart(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v", values, err)
		}
	}
}

// helm itself agrees, where it is installed.
func TestHelmAgrees(t *testing.T) {
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Skip("helm is not installed")
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(values, []byte(everything), 0o600))
	for _, args := range [][]string{
		{"lint", "--strict", chart}, {"lint", "--strict", chart, "--values", values},
		{"template", "locks", chart}, {"template", "locks", chart, "--values", values},
	} {
		if out, err := exec.CommandContext(t.Context(), helm, args...).CombinedOutput(); err != nil {
			t.Errorf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
