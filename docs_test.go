// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	mdFence   = regexp.MustCompile("(?ms)^```.*?^```")
)

// slug is the anchor that a heading has on GitHub.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// readDoc returns a document without its blocks of code.
func readDoc(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	need(t, err)
	return mdFence.ReplaceAllString(string(b), "")
}

// Every link of a document to another, to a heading or to a file leads there.
func TestDocumentLinks(t *testing.T) {
	seen, anchors := 0, map[string][]string{} // by file
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "target") && path != "." { // not ours
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		for _, m := range mdLink.FindAllStringSubmatch(readDoc(t, path), -1) {
			seen++
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			if anchors[target] == nil {
				for _, h := range mdHeading.FindAllStringSubmatch(readDoc(t, target), -1) {
					anchors[target] = append(anchors[target], slug(h[1]))
				}
			}
			if !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s links to %s: %s has no such heading", path, m[1], target)
			}
		}
		return nil
	})
	stopIf(t, err != nil || seen < 30, "%d links, %v", seen, err)
}

// The page by which somebody decides can be read in one sitting, and its tables fit a screen.
func TestGuaranteesFitAScreen(t *testing.T) {
	b, err := os.ReadFile("docs/guarantees.md")
	need(t, err)
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) > 120 {
		t.Errorf("docs/guarantees.md has %d lines, 120 are allowed: move details to docs/stores and evidence to docs/evidence.md", len(lines))
	}
	for i, line := range lines {
		n := utf8.RuneCountInString(line)
		failIf(t, n > 150, "docs/guarantees.md:%d has %d columns, 150 are allowed", i+1, n)
	}
}

// Where the Makefile has results written, the marks for them are.
func TestResultsHavePlaces(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	need(t, err)
	b, err := os.ReadFile("docs/results/campaigns.md")
	need(t, err)
	into := regexp.MustCompile(`-into[= ](?:\$\(CURDIR\)/)?([^ )\n]+)`).FindAllStringSubmatch(string(makefile), -1)
	failIf(t, len(into) != 10, "the Makefile has %d places for results, want 10", len(into))
	for _, m := range into {
		if m[1] != "docs/results/campaigns.md" && m[1] != "docs/results/interop.md" {
			t.Errorf("the Makefile writes results into %s, not into a document that has a place for them", m[1])
		}
	}
	for _, name := range []string{"campaign", "campaign of one server", "sweep of the other engines", "campaigns of the other engines", "campaigns of Redis with replicas", "overlap", "simulate", "engines"} {
		for _, mark := range []string{"<!-- " + name + " -->\n", "<!-- /" + name + " -->\n"} {
			failIf(t, strings.Count(string(b), mark) != 1, "no document has the line %q once", mark)
		}
	}
}

// The tests that documents name are there.
func TestNamedTestsAreThere(t *testing.T) {
	declares, names := regexp.MustCompile(`(?m)^func (Test\w+)`), regexp.MustCompile("`(Test\\w+)`")
	declared, named := map[string]bool{}, map[string]string{} // the document
	need(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		test, doc := strings.HasSuffix(path, "_test.go"), filepath.Ext(path) == ".md"
		if err != nil || d.IsDir() || !test && !doc {
			return err
		}
		b, err := os.ReadFile(path)
		if test {
			for _, m := range declares.FindAllSubmatch(b, -1) {
				declared[string(m[1])] = true
			}
		} else {
			for _, m := range names.FindAllSubmatch(b, -1) {
				named[string(m[1])] = path
			}
		}
		return err
	}))
	failIf(t, len(named) < 100, "the documents name only %d tests", len(named))
	for name, path := range named {
		failIf(t, !declared[name], "%s names %s, and there is no such test", path, name)
	}
}

// What CONTRIBUTING says is in a file is there, so that its walk leads somewhere when code moves.
func TestWalkIsThere(t *testing.T) {
	named := regexp.MustCompile("`(\\w+)` in\\s+\\[[^]]+\\]\\(([^)#]+)\\)").FindAllStringSubmatch(readDoc(t, "CONTRIBUTING.md"), -1)
	stopIf(t, len(named) < 10, "CONTRIBUTING.md names only %d places", len(named))
	for _, m := range named {
		checkDeclared(t, m[1], m[2])
	}
}

// Each question of CONTRIBUTING's table is answered by two files at most, and what an answer names is in the file that it names next.
func TestTwoOpeningsAnswer(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| ([A-Z][^|]*\?) \| (.*) \|$`).FindAllStringSubmatch(readDoc(t, "CONTRIBUTING.md"), -1)
	for _, question := range []string{
		"Where is a lost reply handled?", "Where is a loss declared?", "Where is the fence chosen?", "Where is a waiter woken?",
		"Which Lua runs for a free lock?", "How do I add an engine?", "How do I add a command?", "Where does a free lock go?",
		"Where is a password used?", "Where does the command die with its lock?", "What happens at a failover?", "Where is a test of X?",
	} {
		i := slices.IndexFunc(rows, func(row []string) bool { return row[1] == question })
		if i < 0 {
			t.Errorf("CONTRIBUTING.md has no answer to %q", question)
			continue
		}
		files, named := map[string]bool{}, 0
		for _, part := range regexp.MustCompile(`(.*?)\[[^]]+\]\(([^)#]+)\)`).FindAllStringSubmatch(rows[i][2], -1) {
			files[part[2]] = true
			for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(part[1], -1) {
				named++
				checkDeclared(t, name[1], part[2])
			}
		}
		failIf(t, len(files) == 0 || len(files) > 2 || named == 0, "%q takes %d files and names %d places, want one or two, and what to look for", question, len(files), named)
	}
}

// checkDeclared checks that a file declares a function or a type.
func checkDeclared(t *testing.T, name, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	if !regexp.MustCompile(`(?m)^(local )?(func|function|type)\b[^={]*\b` + name + `\b`).Match(b) {
		t.Errorf("CONTRIBUTING.md looks for %s in %s, which declares no such thing", name, file)
	}
}
