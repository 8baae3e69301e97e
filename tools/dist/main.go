// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Dist makes the files of a release from the last commit: it builds the command twice for each target, in different
// folders and with different caches, fails unless both are equal, and packs what came out. Run it in the top folder.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const module = "github.com/hasplock/hasp"

// release is what is made, and of what.
type release struct {
	version string // as 0.1.0
	out     string
	warm    bool      // both builds have one cache
	epoch   string    // the time of the commit, in seconds
	work    string    // a folder for what is needed on the way
	clones  [2]string // of the repository
	files   map[string][]byte
}

// failed ends a run: nothing goes on after an error, and a panic cleans up on its way.
type failed struct{ error }

func check(err error) {
	if err != nil {
		panic(failed{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func main() {
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "what to build for")
	warm := flag.Bool("warm", false, "build the second time from the cache of the first: quick, and not for a release")
	out := flag.String("out", ".bin/dist", "the folder, which is emptied first")
	flag.Parse()
	if err := run(flag.Arg(0), *out, *warm, strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(version, out string, warm bool, targets []string) (err error) {
	defer func() {
		if f, ok := recover().(failed); ok {
			err = f
		}
	}()
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(version) {
		return fmt.Errorf("VERSION must look like v1.2.3, not %q", version)
	}
	work := must(os.MkdirTemp("", "dist"))
	defer os.RemoveAll(work)
	r := &release{version: version[1:], out: must(filepath.Abs(out)), warm: warm, work: work, clones: [2]string{work + "/one", work + "/the/other"}}
	r.clone()
	check(os.RemoveAll(out))
	check(os.MkdirAll(out, 0o755))
	r.describe()
	for _, target := range targets {
		r.pack(target, r.buildTwice(target))
	}
	r.publish()
	return nil
}

// clone copies the commit into two folders. The tag in them is what go stamps into the command as its version. The
// modules of the repository are taken from their folders, as between releases, in the commit of a release, too.
func (r *release) clone() {
	r.epoch = command(".", nil, "git", "log", "-1", "--format=%ct")
	modules := command(".", nil, "scripts/modules")
	for _, dir := range r.clones {
		command(".", nil, "git", "clone", "-q", "--no-tags", ".", dir)
		command(dir, nil, "git", "tag", "cmd/hasp/v"+r.version)
		edit := []string{"go", "mod", "edit"}
		for m := range strings.FieldsSeq(modules) {
			edit = append(edit, "-replace="+filepath.ToSlash(filepath.Join(module, m))+"=../../"+m)
		}
		for _, name := range []string{"go.mod", "go.sum"} {
			check(os.WriteFile(dir+filepath.Ext(name), must(os.ReadFile(dir+"/cmd/hasp/"+name)), 0o600))
		}
		command(dir, nil, append(edit, dir+".mod")...)
	}
}

// goCommand runs go on the command's module in one of the clones.
func (r *release) goCommand(clone int, env []string, args ...string) string {
	dir := r.clones[clone]
	env = append([]string{"CGO_ENABLED=0", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=-trimpath -buildvcs=true -modfile=" + dir + ".mod"}, env...)
	return command(dir+"/cmd/hasp", env, append([]string{"go"}, args...)...)
}

// buildTwice returns the path of the command for a target.
func (r *release) buildTwice(target string) string {
	var sums [2]string
	for i := range r.clones {
		env := platform(target)
		if i == 1 && !r.warm {
			env = append(env, "GOCACHE="+r.work+"/cache")
		}
		binary := fmt.Sprintf("%s/%d", r.work, i)
		r.goCommand(i, env, "build", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, ".")
		sums[i] = sum(must(os.ReadFile(binary)))
	}
	if sums[0] != sums[1] {
		check(fmt.Errorf("%s: two builds differ: %s and %s", target, sums[0], sums[1]))
	}
	fmt.Printf("%s: two builds are equal: %s\n", target, sums[0])
	return r.work + "/0"
}

func platform(target string) []string {
	system, arch, _ := strings.Cut(target, "/")
	return []string{"GOOS=" + system, "GOARCH=" + arch}
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// command runs a program and returns what it prints.
func command(dir string, env []string, args ...string) string {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		check(fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said.String()))
	}
	return strings.TrimSpace(string(out))
}
