// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import _ "embed"

// What --help and the manual pages say is in the folder help.
var (
	//go:embed help/run.txt
	runLong string
	//go:embed help/acquire.txt
	acquireLong string
	//go:embed help/held.txt
	heldLong string
	//go:embed help/release.txt
	releaseLong string
	//go:embed help/elect.txt
	electLong string
)

const runExample = `  hasp run nightly -- ./report.sh --full      wait for the key, then hold it
  hasp run -nq -E 0 nightly -- ./report.sh    from cron: if held, do nothing
  hasp run -w 30 nightly -- sh -c 'psql -v fence=$HASP_FENCE -f nightly.sql'
  hasp run --shared data -- ./backup.sh       beside other readers
  hasp run --slots 3 gpu -- sh -c 'train --gpu $HASP_SLOT'
  hasp run from to -- ./move.sh               two keys, without a deadlock
  hasp run --hold-at-least 10m --reason cron nightly -- ./report.sh`

const acquireExample = `  hasp acquire nightly || exit
  hasp acquire -n nightly || exit 0            busy is not an error
  hasp acquire -s data && cp -r data backup; hasp release data
  fence=$(hasp held --print fence nightly) || exit`

const electExample = `  hasp elect scheduler -- ./scheduler          on each of several hosts
  hasp elect --observe scheduler
  hasp elect --observe -o json scheduler | jq .leader.host`
