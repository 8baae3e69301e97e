// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command deploy renders the jsonnet of mixin into the files that Prometheus and
// Grafana read: go run ./deploy, in the repository's top folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-jsonnet"
)

// rendered maps each file to the jsonnet program that makes it. The program's value is the text.
var rendered = map[string]string{
	"prometheus/rules.yaml": `
		'# Copyright 2026 The hasp Authors\n# SPDX-License-Identifier: Apache-2.0\n#\n' +
		'# Rendered from deploy/mixin by "go run ./deploy": change it there.\n' +
		std.manifestYamlDoc((import 'mixin.libsonnet').prometheusAlerts, indent_array_in_object=false, quote_keys=false) + '\n'`,
	"grafana/hasp.json": `std.manifestJsonEx((import 'mixin.libsonnet').grafanaDashboards['hasp.json'], '  ') + '\n'`,
}

func main() {
	dir := "deploy"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	for path := range rendered {
		text, err := render(dir, path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "deploy:", err)
			os.Exit(1)
		}
	}
}

// render returns what belongs into a file of dir, the folder that has mixin in it.
func render(dir, path string) (string, error) {
	vm := vmIn(dir)
	vm.StringOutput = true
	return vm.EvaluateAnonymousSnippet(path, rendered[path])
}

func vmIn(dir string) *jsonnet.VM {
	vm := jsonnet.MakeVM()
	vm.Importer(&jsonnet.FileImporter{JPaths: []string{filepath.Join(dir, "mixin")}})
	return vm
}
