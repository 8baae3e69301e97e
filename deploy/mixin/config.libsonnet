// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0
{
  _config+:: {
    // What every query of a program's metrics selects, as PromQL has it between braces: 'job="orders"'. Empty: everything.
    selector: '',

    // The 99th percentile of the wait for a lock, above which HaspWaitSlow fires.
    waitSeconds: 1,
    // Which waits count in it. A call of TryLock that is refused counts as a wait of 0 s. If there are so
    // many that they hide the slow ones, take 'outcome="acquired"': but then waits that time out do not count.
    waitSelector: '',

    // How many may wait for the keys of a class, in all processes of a job.
    waiters: 25,

    // Classes, as a regular expression, whose keys are held for long by design, like a nightly job's: waiters
    // there are no reason for HaspNobodyAcquires.
    longHeldClasses: '',

    // The share of renewals that may come when more than half of the TTL has passed. A lease is renewed after a third.
    lateRenewals: 0.05,

    // The share of releases that the store may leave unconfirmed.
    failedReleases: 0.01,

    // Within how many hours a job must succeed, and which jobs, by selector: 'key!~"weekly|monthly"'. Empty: all.
    lateJobHours: 26,
    lateJobs: '',

    // For how many hours a key may be held. 0: no such alert, as where leaders hold theirs for weeks.
    heldHours: 24,

    // The anchors of this document are the names of the alerts.
    runbooks: 'https://github.com/hasplock/hasp/blob/main/docs/operations.md#',

    dashboardUid: 'hasp-locks',
  },
}
