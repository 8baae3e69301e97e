// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

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
