// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

const runLong = `hasp run waits for KEY, holds it while COMMAND runs, and exits with the
command's own status. No shell is involved: for one, write sh -c '…'.

Waiting is first come, first served (but for Redisson's locks without kind=fair).
After 400 ms hasp says who holds the key. Ctrl-C and TERM end the wait at once and
leave no place in the queue.

With --shared any number of commands read together; without it a command writes,
alone. Consecutive readers are admitted together, and those who come after a
waiting writer wait for it. With --slots N at most N commands run at once, each
with a number of its own, HASP_SLOT, the smallest that is free. Where commands
name different N for one key, the smallest among the holders and the one who asks
counts.

Several KEYs are held all together or not at all, in whatever order they are
named, without deadlocks; one that is lost ends the command. One key named twice
counts once.

hasp waits for a store that is unreachable, or held back after a restart, as it
waits for a busy key: for ever, or as -w says, and says so. What needs a person (a
wrong password, a name that does not exist) ends the wait at once.

The key is renewed while the command runs. If that fails for too long (the store
is unreachable, this machine slept, somebody broke the lock) the lock is lost: the
command, its process group, and on Linux everything it started get TERM, then
KILL after --grace, all before the store gives the key to anybody else; hasp
exits with 124. When the store says that another holds the key already, TERM
comes at once.

Signals to hasp (INT, TERM, HUP, QUIT, USR1, USR2) are passed on to the command's
process group. At a terminal the command can read it, and Ctrl-Z and fg work as
without hasp; but a stopped hasp renews nothing: a command that was stopped for
longer than the TTL is ended when it goes on. When hasp itself is killed with -9
the kernel kills the command (on Linux; what the command started runs on, and the
key is free when the TTL is over). When only hasp is stopped its command runs on,
and nothing but the fence protects what it writes.

Processes that the command leaves in the background when it ends are left alone,
and named before the key is released. When a signal was its end they get TERM, and
the key is kept until they end, for --grace at most. A setuid command, and what it
starts as another user, may outlive hasp or the lock: that is said. On macOS processes that left the command's group are not
found; on Windows there are no signals, and only the command itself is killed.

The command sees HASP_KEY, HASP_FENCE (larger for each later holder; give it to
the storage that you write to, to refuse a late writer; unset where the locks of
the store have no fences), HASP_OWNER, HASP_SLOT (with --slots) and
HASP_STORE_KIND. Those are of the first key; HASP_KEY_1, HASP_FENCE_1, HASP_KEY_2
and so on are of each. HASP_ABANDONED=1 says that a previous holder did not release
a key, since it died or lost it: what it worked on may need repair. HASP_STORE, or
HASP_STORE_FILE, names the store, so that a hasp within the command means the same
one; a URL with a password from --store is put into a file that only you can read,
until hasp ends. A hasp within the command that asks for a key which the command
runs under ends at once, as busy: it would wait for ever.

With --hold-at-least hasp stays after a quick command and keeps the key, so that
a host whose clock is behind does not run the same job again. A signal in that
time makes it leave at once; the store then keeps the key for the rest.

Exit status: the command's, 128 + n for a signal. 75 busy (-E). 124 lock lost or
--max-hold reached, command ended. 64 wrong usage. 69 store not reachable, or too few of its servers vote. 77 not
allowed. 78 wrong configuration. 126, 127 cannot execute, not found. 125 hasp
failed. 129, 130, 131, 143 ended by a signal while waiting. The last line on
standard error says which it was.`

const runExample = `  hasp run nightly -- ./report.sh --full
  hasp run -nq -E 0 nightly -- ./report.sh              from cron: busy is not an error, and sends no mail
  hasp run -w 30 nightly -- sh -c 'psql -v fence=$HASP_FENCE -f nightly.sql'
  hasp run --shared data -- ./backup.sh                 beside others who read
  hasp run --slots 3 gpu -- sh -c 'train --gpu $HASP_SLOT'
  hasp run from to -- ./move.sh                         two keys, without a deadlock
  hasp run --hold-at-least 10m --reason cron nightly -- ./report.sh`

const acquireLong = `hasp acquire waits for KEY as hasp run does, and ends when the calling shell has it:
0; or the status of hasp run, with nothing held. The key is held until that shell
ends, however it ends, or calls hasp release. A process in the background renews
it, away from the terminal and from the shell's pipes.

When the lock is lost, the shell and all that it started get TERM, then KILL after
--grace, before the store gives the key to anybody else. Daemons that left the
shell's family are not found. At a prompt that would be everything you work with:
there a loss is only reported, by a message and by hasp held, unless --on-lost
says otherwise.

The calling shell is the parent process. In ( … ) that is the subshell; within
$( … ) the shell that reads what that says. Where another program calls hasp, such as
timeout or sudo, hasp refuses: --pid $$ says which process to hold the key for.

hasp held KEY says whether it is still held, and hasp held --print fence KEY prints
the fence, for the storage that you write to. When the process in the background
is killed with -9, or stopped, nobody ends the shell: only hasp held and the fence
show it. The keys of one hasp acquire are held, and released, together.

One that is stopped with Ctrl-Z while it waits gets the key all the same when its
turn comes, and gives it back when it is ended by a signal. This needs Linux 5.3.

Exit status: 0 the shell holds the keys. 75 busy (-E). 64, 69, 77, 78, 124, 125 and
129 to 143 as hasp run.`

const acquireExample = `  hasp acquire nightly || exit
  hasp acquire -n nightly || exit 0            busy is not an error
  hasp acquire -s data && cp -r data backup; hasp release data
  fence=$(hasp held --print fence nightly) || exit`

const heldLong = `hasp held says whether KEY is held by hasp acquire for the calling shell, or for one
that started it. It asks the process that holds the key, which checks the clock and
not the store.

Exit status: 0 held. 1 not held, or no longer. 124 lost, or the process that holds
it does not answer.`

const releaseLong = `hasp release releases what hasp acquire holds for the calling shell, never for one
that started it, and ends when the store has confirmed. Without KEY: everything.

Exit status: 0 released. 1 not held, or no longer. 124 it was lost, or the process
that holds it does not answer. 69 the store does not answer, and keeps the key
until its TTL is over.`

const electLong = `hasp elect is a candidate: it waits until it leads KEY, runs COMMAND while it
does, and is a candidate again when the command has ended or it no longer leads. At
most one candidate leads at any instant; it is the same lock as that of hasp run KEY.

When the command ends by itself, whatever its status, hasp resigns, and is a
candidate again after a pause: 1 s, and twice as long each time up to a minute, so
that a command that fails at once does not spin. After one that ran for a minute it
is 1 s again. When the leadership is lost the command is ended as in hasp run,
before another leads. hasp waits for a store that is unreachable or held back.

INT, TERM and QUIT end the candidacy: the command gets the signal, hasp waits for
it, resigns, and exits as hasp run does. HUP, USR1 and USR2 are for the
command and end the candidacy only when the command ends by them; while none runs
they are ignored. At a terminal HUP ends it, as the terminal is gone.

The command sees HASP_KEY, HASP_FENCE (larger for each later leader), HASP_OWNER,
HASP_ABANDONED=1 (a previous leader did not resign, since it died or lost the
leadership) and HASP_STORE_KIND.

With --observe it runs nothing and prints on standard output who leads, now and
at each change, until a signal ends it. It asks every second: a leader between
two questions may be missed.

Exit status: as hasp run, for the command that ran when a signal ended the
candidacy. 129, 130, 131, 143 ended by a signal while no command ran.`

const electExample = `  hasp elect scheduler -- ./scheduler          on each of several hosts
  hasp elect --observe scheduler
  hasp elect --observe -o json scheduler | jq .leader.host`
