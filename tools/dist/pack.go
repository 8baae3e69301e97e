// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"embed"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed templates
var templates embed.FS

const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// describe collects what every archive has beside the command and its notices.
func (r *release) describe() {
	hasp, manuals := r.work+"/hasp", r.work+"/man"
	r.goCommand(0, nil, "build", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", hasp, ".")
	check(os.Mkdir(manuals, 0o755))
	command(".", nil, hasp, "man", manuals)
	r.files = map[string][]byte{}
	for shell, name := range map[string]string{"bash": "hasp.bash", "zsh": "_hasp", "fish": "hasp.fish", "powershell": "hasp.ps1"} {
		r.files["completion/"+name] = []byte(command(".", nil, hasp, "completion", shell) + "\n")
	}
	for _, file := range must(filepath.Glob(manuals + "/*")) {
		r.files["man/"+filepath.Base(file)] = must(os.ReadFile(file))
	}
	for _, file := range []string{"LICENSE", "CHANGELOG.md", "deploy/systemd/hasp-agent.service", "deploy/systemd/hasp-agent.socket", "deploy/systemd/hasp-serve.service"} {
		r.files[filepath.Base(file)] = must(os.ReadFile(r.clones[0] + "/" + file))
	}
}

// pack writes what users of one target install, and the list of its parts.
func (r *release) pack(target, binary string) {
	system, arch, _ := strings.Cut(target, "/")
	name := fmt.Sprintf("hasp_%s_%s_%s", r.version, system, arch)
	program, suffix, archive := "hasp", ".tar.gz", tarball
	if system == "windows" {
		program, suffix, archive = "hasp.exe", ".zip", zipped
	}
	parts, notices := r.parts(target, binary)
	files := maps.Clone(r.files)
	files[program], files["THIRD_PARTY_LICENSES"] = must(os.ReadFile(binary)), notices
	at := r.at()
	var packed bytes.Buffer
	archive(&packed, name, files, at)
	check(os.WriteFile(filepath.Join(r.out, name+suffix), packed.Bytes(), 0o644))
	r.wheel(target, program, files[program], at)
	r.npmBinary(target, program, files[program], at)

	stage := filepath.Join(r.work, name)
	data := map[string]any{"Version": r.version, "Time": at.Format(time.RFC3339), "Parts": parts, "Sum": sum(files[program]),
		"Arch": arch, "Stage": stage, "Files": slices.Sorted(maps.Keys(files))}
	r.render("sbom.json", filepath.Join(r.out, name+".cdx.json"), data)
	if system != "linux" {
		return
	}
	for file, text := range files {
		check(os.MkdirAll(filepath.Dir(filepath.Join(stage, file)), 0o755))
		check(os.WriteFile(filepath.Join(stage, file), text, 0o644))
	}
	r.render("nfpm.yaml", stage+".yaml", data)
	tool := command(".", nil, "scripts/tool", nfpm)
	for _, kind := range []string{"deb", "rpm"} {
		command(".", []string{"SOURCE_DATE_EPOCH=" + r.epoch}, tool, "package", "-f", stage+".yaml", "-p", kind, "-t", filepath.Join(r.out, name+"."+kind))
	}
}

// at is the time of the commit.
func (r *release) at() time.Time { return time.Unix(must(strconv.ParseInt(r.epoch, 10, 64)), 0).UTC() }

// part is a module in the command, or Go's standard library.
type part struct{ Name, Version, Purl string }

func newPart(name, version string) part {
	return part{name, version, "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")}
}

var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// parts returns what a binary consists of, and the licences of all that is not hasp's own.
func (r *release) parts(target, binary string) (parts []part, notices []byte) {
	info := must(buildinfo.ReadFile(binary))
	dirs := map[string]string{"std": r.goCommand(0, nil, "env", "GOROOT")}
	for line := range strings.Lines(r.goCommand(0, platform(target), "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Dir}}{{end}}", ".")) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		dirs[path] = dir
	}
	parts = []part{newPart("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		if strings.HasPrefix(dep.Path, module) {
			dep.Version = "v" + r.version
		}
		parts = append(parts, newPart(dep.Path, dep.Version))
	}
	for _, p := range parts {
		before := len(notices)
		for _, e := range must(os.ReadDir(dirs[p.Name])) {
			if licence.MatchString(e.Name()) && !strings.HasPrefix(p.Name, module) {
				text := bytes.TrimSpace(must(os.ReadFile(filepath.Join(dirs[p.Name], e.Name()))))
				notices = fmt.Appendf(notices, "======== %s %s: %s\n\n%s\n\n", p.Name, p.Version, e.Name(), text)
			}
		}
		if len(notices) == before && !strings.HasPrefix(p.Name, module) {
			check(fmt.Errorf("%s has no licence in %s", p.Name, dirs[p.Name]))
		}
	}
	return parts, notices
}

// render writes a file from its template, which can ask for the checksum of what was packed.
func (r *release) render(from, to string, data any) {
	sumOf := func(suffix string) string {
		packed, err := os.ReadFile(filepath.Join(r.out, "hasp_"+r.version+"_"+suffix))
		if err != nil {
			return "not built"
		}
		return sum(packed)
	}
	var text bytes.Buffer
	check(template.Must(template.New(from).Funcs(template.FuncMap{"sum": sumOf}).ParseFS(templates, "templates/"+from)).Execute(&text, data))
	check(os.WriteFile(to, text.Bytes(), 0o644))
}

// publish writes what names the packed files by their checksums.
func (r *release) publish() {
	r.npmClient(r.at())
	_, image, _ := strings.Cut(string(must(os.ReadFile(r.clones[0]+"/deploy/Containerfile"))), "\nFROM scratch")
	for _, name := range []string{"hasp.rb", "hasp.json", "Containerfile"} {
		r.render(name, filepath.Join(r.out, name), map[string]string{"Version": r.version, "Image": image})
	}
	var sums []byte
	for _, e := range must(os.ReadDir(r.out)) {
		sums = fmt.Appendf(sums, "%s  %s\n", sum(must(os.ReadFile(filepath.Join(r.out, e.Name())))), e.Name())
	}
	check(os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums, 0o644))
}

func tarball(to io.Writer, top string, files map[string][]byte, at time.Time) {
	gz := gzip.NewWriter(to)
	w := tar.NewWriter(gz)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: top + "/" + name, Mode: 0o644, Size: int64(len(files[name])), ModTime: at, Format: tar.FormatUSTAR}
		if name == "hasp" {
			header.Mode = 0o755
		}
		check(w.WriteHeader(header))
		must(w.Write(files[name]))
	}
	check(w.Close())
	check(gz.Close())
}

func zipped(to io.Writer, top string, files map[string][]byte, at time.Time) {
	w := zip.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := must(w.CreateHeader(&zip.FileHeader{Name: top + "/" + name, Method: zip.Deflate, Modified: at}))
		must(f.Write(files[name]))
	}
	check(w.Close())
}
