// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

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
