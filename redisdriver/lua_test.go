// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// allScripts are the scripts by the names that they have outside of this package: in testdata, and for the linter.
var allScripts = map[string]*wire.Script{
	"batch": plain.batch, "batch_node": node.batch, "extend": plain.extend, "extend_node": node.extend, "keep": plain.keep, "keep_node": node.keep,
	"bear": bearScript, "inspect": inspectScript, "sweep": sweepScript, "record": recordScript, "admit": admitScript, "guard": guardScript,
}

var builtIn = flag.String("built", "", "the `folder` that gets the scripts as they are sent, which the linter and the search for mutants read")

// Each script is built whole, the same each time, and of its file: nothing that stands for something else is left in it.
func TestScriptsAreBuilt(t *testing.T) {
	for name, s := range allScripts {
		of, node := strings.CutSuffix(name, "_node")
		node = node || of == "record" || of == "admit"
		if again := build(of, node); again != s.Text() {
			t.Errorf("%s is not what is built of %s.lua", name, of)
		}
		if left := regexp.MustCompile(`\bF\.\w+|--#.*|0x0|<invalid[^>]*>`).FindString(s.Text()); left != "" {
			t.Errorf("%s has %q", name, left)
		}
		if *builtIn != "" {
			must(t, os.WriteFile(filepath.Join(*builtIn, name+".lua"), []byte(s.Text()), 0o644))
		}
	}
}

// Every key that a script touches is among those that it is called with: a server may refuse any other. So no script makes a name.
func TestScriptsMakeNoKeys(t *testing.T) {
	for name, s := range allScripts {
		if made := regexp.MustCompile(`'hasp\.[^']*'|(KEYS\[[^]]*\]|K\.[a-z]+) *\.\.|\.\. *K(EYS\[|\.(queue|grant|places))`).FindString(s.Text()); made != "" {
			t.Errorf("%s makes a name: %s", name, made)
		}
	}
}

// A request has all the fields of its kind, in their order.
func TestRequestsHaveTheirFields(t *testing.T) {
	for _, args := range []interface{ args() []any }{
		tryArgs{"1", 2, "3", 4}, proposeArgs{"1", 2, "3", "4"}, tryAnyArgs{"1", 2, "3", 4, "5", "6", "7", "8", 9},
		releaseArgs{"1"}, withdrawArgs{"1", "2"}, releaseAnyArgs{"1", "2", "3", "4", "5"},
	} {
		have := args.args()
		if n := reflect.TypeOf(args).NumField(); len(have) != n+1 {
			t.Errorf("%v of %d fields", have, n)
		}
		for i, v := range have[1:] {
			failIf(t, fmt.Sprint(v) != fmt.Sprint(i+1), "%v are not in order", have)
		}
	}
}
