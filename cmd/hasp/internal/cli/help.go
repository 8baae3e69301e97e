// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

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

const doctorLong = `hasp doctor examines a store: does it answer, does it grant locks, what does it
promise, and what in its configuration endangers that. It touches no lock of others.
Each line of what it finds begins with a word:

  ok     nothing is wrong
  warn   locks are granted, but less is promised than could be
  fail   no locks are granted, or none that are safe

Lines of warn and fail say what to do. Then it tries a lock, on a key of its own,
doctor/RANDOM, with two clients: the second one waits, the first releases; a short lease
is left to expire, and goes to the second; the fences of all grants rise. That takes
some seconds, and leaves nothing behind, also when Ctrl-C ends it.

At the end it says what you may use the store for:

  efficiency    work is hardly ever done twice
  fences        and what you write to is correct, if it compares the fence
  correctness   two never hold a key at once: programs of one machine only

--require USE makes it exit with 78 when the store may be used for less, with a
line that says what is missing and what to change.

Redis servers with max-ttl= in the URL, and those of redlock:, grant nothing after
a restart, or when they are new, until every lease that they may have lost has
expired: about max-ttl and ten seconds from when a hasp of this machine first asked
them. With --admit you declare that nobody holds a lock of the store, and they vote at
once. A wrong declaration can lead to two holders.

max-ttl is the same on every client. To change it: end everything that uses the
store, DEL hasp.node on every server, change the URL everywhere, then
hasp doctor --admit.

Exit status: 0 when nothing fails, whatever it warns of. 64 wrong usage. 69 when the
store, or too many of its nodes, do not answer or vote. 77 when they deny access. 78 for
all else that fails, and when there is less than --require asks for.`

const serveLong = `hasp serve shows in a browser the keys that are held or waited for, all of them or
those that start with PREFIX: who holds what and who waits, live; one key with its queue,
and what happened to it while somebody looked; what hasp doctor and hasp leaks find.
/api/v1 is the same for programs (described in /api/v1/openapi.json), /metrics has counts
for Prometheus, and /healthz says that the server runs. The store is asked once for all
who look, and not at all while nobody does. While it is away the server stays, and the
page says what is wrong.

Without flags it is for this machine only, and to look only: open the address that it
prints; from another machine, go through ssh (below). With --allow-break, everybody on
this machine may also break a lock.

To listen on other addresses it needs --tokens FILE, or --client-ca FILE for client
certificates. A line of the file of tokens is "read NAME TOKEN" or "break NAME TOKEN":
who may only look, and who may break as well. NAME stands in the audit record; a token
has 16 characters at least. Browsers ask for it: it is the password, with any user name.
Programs send "Authorization: Bearer TOKEN". All who have a certificate may look; those
whom --break-subject names may break.

To renew a certificate or revoke a token, change its file: it is read again when
somebody asks, 2 to 4 seconds later, or at once by HUP (kill -HUP PID). The live views
of those who may look no longer end within 5 seconds more. If a new file is wrong, it
says so on standard error, once, and goes on with what it had read before.

A break takes the key from exactly the owner that was shown, and asks for a reason.
Before it is done it is told on standard error and, with --audit, recorded: what cannot
be recorded is not done.

A browser may ask for it by localhost, by an IP address, or by a name that --host gives.
Other names are refused, since a page of another site may have pointed its own name here.

INT and TERM end it, after the requests that are under way, with status 0; and so does
its terminal when that is closed. HUP reads the files again; without files it ends it.

Exit status: 0 ended by INT, by TERM, or with its terminal. 64 wrong usage. 78 a file, the
address or the store's URL cannot be used. 125 the server ended by itself.`

const serveExample = `  hasp serve                                   http://127.0.0.1:8390/, to look only
  ssh -t -L 8390:127.0.0.1:8390 HOST hasp serve on HOST, looked at from here, at the same address
  hasp serve --allow-break --audit breaks.log orders/
  (umask 077; echo "break alice $(openssl rand -hex 32)" >tokens)
  hasp serve --listen :8390 --tokens tokens --tls-cert cert.pem --tls-key key.pem --host locks.example.com
  curl -H "Authorization: Bearer $TOKEN" https://locks.example.com:8390/api/v1/locks?state=waited`

const leaksLong = `hasp leaks lists locks, and what belongs to them, that nobody will end: all there are,
only those of the KEYs named, or of the keys that start with --prefix. It changes nothing
without --fix. The first word of a line says what it is, and so what ends it:

  lease     a lock without an expiry (somebody's PERSIST) that nobody renews: --fix
  sidecar   what hasp kept beside a lock that is gone, without an expiry: --fix
  place     of a waiter that has been silent for a minute longer than it may be: --fix
  foreign   a lock without an expiry that another program set: --fix with its KEY
  ended     held by a process of this host that has ended; its expiry ends it, too:
            --fix with its KEY
  live      a lock without an expiry that its holder renews: its release, or hasp break
  overdue   held for longer than 10 times what is usual for its class, and for a
            minute at least; with --older, for longer than that instead: hasp break

The class of a key is its part before the first : or /. What is usual is the median of
what the class holds now, when it holds 5 keys at least. What ends by itself soon is no
leak: the lease of a holder that died, within its TTL; a place, when its patience is over;
what Redis keeps of a key for a minute. Redis, etcd (keys without a lease) and ZooKeeper
(nodes of no session) can have the first five: what databases keep always expires, and is
swept.

It walks through the store in small steps with pauses, so that others are not slowed
(SCAN on Redis, never KEYS; pages on etcd): a million keys take a minute or two.

With --fix it shows all of this, asks, and removes what is marked so: only if it still is
exactly as it was shown, and never what somebody renews. What somebody may still need
gets an expiry of a minute instead. With a KEY you say that nobody holds it: hasp cannot
know that of another program, or of a process that has ended (another may have adopted
its lease). With --audit, or HASP_AUDIT, it records what it removes, before and after,
with the --reason; what cannot be recorded is not removed.

Exit status: 0 nothing was found, or all of it was removed. 1 something was found, and is
still there. 64 wrong usage. 69 the store cannot be reached. 77 it denies access. 78 the
audit record or the store's URL cannot be used.`

const verifyLong = `hasp verify tries your store as it is: it starts processes that want a few keys,
kills some of them with -9, stops others for longer than their lease lasts
(not on Windows) and cancels waits. It does nothing to servers or the network.
Then it judges what they saw:

  one holder of a key at a time, until its deadline
  fences rise from holder to holder, and none is given twice
  a register that compares fences loses no write, not even to a client that was
  stopped and goes on
  a lease lasts until its deadline
  after the last fault every key is acquired again, within two TTLs and 30s

The keys are hasp-verify/RANDOM/N, which nobody else uses (a Redis user who may
lock some keys only: put their prefix in prefix= of the store's URL). At most 200
leases a second are asked for, over all clients. What a killed client leaves
expires with its TTL. The same --seed gives the same faults at the same moments;
what the clients do in between depends on the machine.

Exit status: 0 when nothing was found, 1 when a rule was broken: BROKEN says which,
by whom, and when. 69, 77, 78 when the store cannot be used, or went away. 130, 143
when a signal ended it early and nothing was found until then.

Where leases have no fences (Redisson's locks, but for kind=fenced), the second and
the third are not tried.

A run that finds nothing proves nothing: it was one run, without faults of a server.`

const topLong = `hasp top shows the keys that are held or waited for, all of them or those that start
with PREFIX, and asks for them again every 2 s: how each is held, by whom, for how
long, what is left of its TTL, how many wait, and for how long the first of them has.
It changes nothing unless you press b; with --read-only, not even then.

  up down j k    move; also PgUp PgDn g G
  Enter          one key: its holders, with owner, fence and reason, and its queue
  b              break: take the key from the holder, or the waiter, under the cursor;
                 it asks first
  /              filter keys and holders as you type, by a part, or with * and ? as a
                 whole (orders/* is a prefix)
  s r            sort by the next column; the other way round
  ? Esc          the keys; back
  q Ctrl-C       quit

A break shows whom it hits and what follows, asks for a reason, and needs a y. It hits
exactly the owner that was shown, never a later one. With --audit, or HASP_AUDIT, it
is recorded, with the reason, before and after; what cannot be recorded is not broken.

The store is asked as hasp ls asks it, and about the keys on the screen that others
wait for; at most a quarter of the time. One that is slow or away leaves the latest
list on the screen, with its age. NO_COLOR turns colours and inverse text off. Without
a terminal, or at one that cannot be drawn on, use hasp ls.

Exit status: 0 by q. 130 by Ctrl-C. 64 wrong usage, or no terminal to draw on. 78 the
audit record or the store's URL cannot be used.`

// manual are the sections that every manual page ends with.
var manual = []struct{ title, text string }{
	{"EXIT STATUS", `hasp run and hasp elect exit with the status of the command; 128 + n when signal n ended it. Its own codes are these, and the same for every other hasp command, where 0 is success. New ones may be added: treat an unknown one as a failure.

1: hasp leaks found something that it did not remove; hasp verify saw a rule broken; hasp held, hasp release: the shell does not hold the key.

75: busy: the key was not acquired with -n or within -w (run has -E for another code); or what was to be broken is held by another.

124: the lock was lost, or --max-hold was reached, and the command was ended.

125: hasp itself failed.

126, 127: the command cannot be executed; was not found.

64: the command line is wrong.

69: the store cannot be reached, or does not answer, or too few of its servers vote. run and elect wait for it, unless -n or -w says otherwise.

77: the store does not allow it.

78: the configuration is wrong: the store's URL; a store that is full, read-only or cannot carry locks.

129, 130, 131, 143: ended by a signal (HUP, INT, QUIT, TERM) while waiting, or before a hasp verify was over.

As the command's own status may be any of these, hasp says on standard error, in its last line, what happened, unless the command succeeded or -q is given; with -o json that line is an object with the fields code and verdict.`},
	{"ENVIRONMENT", `HASP_STORE: the URL of the store.

HASP_STORE_FILE: a file that holds the URL, for URLs with a password, which do not belong on a command line that ps shows.

HASP_AUDIT: a file, or the word syslog: where --audit records who broke a key or removed a leak, and which were lost.

NO_COLOR: when it is not empty, hasp top uses no colours.

HASP_SERVE_TOKENS: the tokens of hasp serve, a line each, when there is no --tokens.

XDG_STATE_HOME: where the default store is (~/.local/state when unset).

HASP_KEY, HASP_FENCE, HASP_OWNER, HASP_SLOT, HASP_STORE_KIND, HASP_ABANDONED: set for the command of hasp run and of hasp elect; with _1, _2 and so on at the end, for each key.

HASP_HELD: set for the command, too: the owners of the leases under which it runs, its own and those of each hasp around it.`},
	{"FILES", `~/.local/state/hasp/locks.db: the default store.

~/.local/state/hasp/shells/: how hasp held and hasp release find what hasp acquire holds.

~/.local/state/hasp/waits/: how long servers that are held back have been waited for.`},
}
