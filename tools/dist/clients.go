// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// platforms name each target as wheels and npm do. A static binary needs no libc, so it is for any Linux.
var platforms = map[string]struct{ wheel, system, cpu string }{
	"linux/amd64":   {"manylinux_2_17_x86_64.musllinux_1_1_x86_64", "linux", "x64"},
	"linux/arm64":   {"manylinux_2_17_aarch64.musllinux_1_1_aarch64", "linux", "arm64"},
	"darwin/amd64":  {"macosx_12_0_x86_64", "darwin", "x64"},
	"darwin/arm64":  {"macosx_12_0_arm64", "darwin", "arm64"},
	"windows/amd64": {"win_amd64", "win32", "x64"},
	"windows/arm64": {"win_arm64", "win32", "arm64"},
}

// source is a file of the client of a language.
func (r *release) source(file string) []byte {
	return must(os.ReadFile(r.clones[0] + "/clients/" + file))
}

// wheel writes what pip installs: the client for Python, with the command beside it.
func (r *release) wheel(target, program string, binary []byte, at time.Time) {
	base, pre, _ := strings.Cut(r.version, "-")
	version := base
	if pre != "" { // Python's versions have no such names
		version += ".dev0+" + strings.ReplaceAll(strings.ToLower(pre), "-", ".")
	}
	name, tag := "hasplock-"+version, "py3-none-"+platforms[target].wheel
	info := name + ".dist-info/"
	files := map[string][]byte{
		"hasplock/__init__.py":    r.source("python/hasplock/__init__.py"),
		"hasplock/py.typed":       nil,
		"hasplock/" + program:     binary,
		info + "licenses/LICENSE": r.files["LICENSE"],
		info + "METADATA": fmt.Appendf(nil, "Metadata-Version: 2.1\nName: hasplock\nVersion: %s\nSummary: %s\nLicense: Apache-2.0\nProject-URL: Source, https://%s\n"+
			"Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n%s", version, summary, module, r.source("python/README.md")),
	}
	wheel := "Wheel-Version: 1.0\nGenerator: hasp\nRoot-Is-Purelib: false\n"
	for one := range strings.SplitSeq(platforms[target].wheel, ".") {
		wheel += "Tag: py3-none-" + one + "\n"
	}
	files[info+"WHEEL"] = []byte(wheel)
	var record []byte
	for _, file := range slices.Sorted(maps.Keys(files)) {
		hash := sha256.Sum256(files[file])
		record = fmt.Appendf(record, "%s,sha256=%s,%d\n", file, base64.RawURLEncoding.EncodeToString(hash[:]), len(files[file]))
	}
	files[info+"RECORD"] = fmt.Appendf(record, "%sRECORD,,\n", info)
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		header := &zip.FileHeader{Name: file, Method: zip.Deflate, Modified: at}
		header.SetMode(0o644)
		if path.Base(file) == program {
			header.SetMode(0o755)
		}
		must(must(w.CreateHeader(header)).Write(files[file]))
	}
	check(w.Close())
	check(os.WriteFile(filepath.Join(r.out, name+"-"+tag+".whl"), packed.Bytes(), 0o644))
}

const summary = "Distributed locks with fences, deadlines and a queue, by way of hasp agent"

// npmBinary writes the package that has the command for one platform; the client's has all of them as optional dependencies.
func (r *release) npmBinary(target, program string, binary []byte, at time.Time) {
	p := platforms[target]
	name := p.system + "-" + p.cpu
	about := map[string]any{"name": "@hasplock/" + name, "version": r.version, "description": "hasp for " + name, "license": "Apache-2.0",
		"os": []string{p.system}, "cpu": []string{p.cpu}, "preferUnplugged": true}
	r.npm("hasplock-"+name, about, map[string][]byte{program: binary, "LICENSE": r.files["LICENSE"]}, at)
}

// npmClient writes the client for Node.
func (r *release) npmClient(at time.Time) {
	var about map[string]any
	check(json.Unmarshal(r.source("node/package.json"), &about))
	optional := map[string]string{}
	for _, p := range platforms {
		optional["@hasplock/"+p.system+"-"+p.cpu] = r.version
	}
	about["version"], about["optionalDependencies"] = r.version, optional
	delete(about, "scripts")
	files := map[string][]byte{"LICENSE": r.files["LICENSE"]}
	for _, file := range []string{"README.md", "index.js", "index.d.ts"} {
		files[file] = r.source("node/" + file)
	}
	r.npm("hasplock", about, files, at)
}

func (r *release) npm(name string, about map[string]any, files map[string][]byte, at time.Time) {
	files["package.json"] = append(must(json.MarshalIndent(about, "", "  ")), '\n')
	var packed bytes.Buffer
	tarball(&packed, "package", files, at)
	check(os.WriteFile(filepath.Join(r.out, name+"-"+r.version+".tgz"), packed.Bytes(), 0o644))
}
