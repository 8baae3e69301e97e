// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0
{
  local config = $._config,

  // metric is one of hasp's, with the labels that are asked for and those of the configuration.
  local metric(name, labels='') =
    local all = std.join(', ', std.filter(function(s) s != '', [config.selector, labels]));
    'distributed_lock_%s%s' % [name, if all == '' then '' else '{%s}' % all],

  local alert(name, wait, severity, expr, summary, description) = {
    alert: name,
    expr: expr,
    [if wait != '' then 'for']: wait,
    labels: { severity: severity },
    annotations: {
      summary: summary,
      description: description,
      runbook_url: config.runbooks + std.asciiLower(name),
    },
  },

  local theJob = 'Job {{ $labels.key }} ({{ $labels.file }} on {{ $labels.instance }})',
  // ofJob is a metric of hasp run --metrics-file.
  local ofJob(name) = 'hasp_job_last_%s%s' % [name, if config.lateJobs == '' then '' else '{%s}' % config.lateJobs],
  local success = ofJob('success_timestamp_seconds'),

  local theClass = 'the keys of class {{ $labels.class }} ({{ $labels.engine }}, job {{ $labels.job }})',

  prometheusAlerts+:: {
    groups+: [{
      name: 'hasp',
      rules: [
        alert(
          'HaspWaitSlow',
          '5m',
          'warning',
          'histogram_quantile(0.99, sum by (job, engine, class, le) (rate(%s[5m]))) > %g' %
          [metric('wait_seconds_bucket', config.waitSelector), config.waitSeconds],
          'Locks are waited for too long. Look with "hasp top" for the key with the most waiters, and who holds it.',
          'One in a hundred waits for ' + theClass + ' takes over {{ $value | humanizeDuration }}.',
        ),
        alert(
          'HaspWaitersPileUp',
          '10m',
          'warning',
          'sum by (job, engine, class) (%s) > %d' % [metric('waiters'), config.waiters],
          'Waiters pile up. Look with "hasp ls" whether one key has them all, and with "hasp show KEY" who holds it.',
          'Waiters for ' + theClass + ': {{ $value }}, for ten minutes.',
        ),
        // A wait is in the histogram when it ends, so one that never ends is only seen here.
        alert(
          'HaspNobodyAcquires',
          '10m',
          'warning',
          |||
            sum by (job, engine, class) (%s) > 0
            unless
            sum by (job, engine, class) (rate(%s[5m])) > 0
          ||| % [
            metric('waiters', if config.longHeldClasses == '' then '' else 'class!~"%s"' % config.longHeldClasses),
            metric('wait_seconds_count', 'outcome="acquired"'),
          ],
          'Somebody waits and nobody is granted a key: a holder may be stuck. Find it with "hasp ls", break it with "hasp break" once you know what it does.',
          'Waiters for ' + theClass + ': {{ $value }}. None was granted one for a quarter of an hour.',
        ),
        alert(
          'HaspLeaseLost',
          '',
          'critical',
          'sum by (job, engine, class) (increase(%s[5m])) > 0' % metric('losses_total'),
          'A lease ended before its holder released it. Check what that holder wrote since; its fence is refused if the storage compares fences.',
          'Leases on ' + theClass + ' lost in five minutes: {{ printf "%.0f" $value }}.',
        ),
        alert(
          'HaspRenewalsLate',
          '10m',
          'warning',
          |||
            1 -
              sum by (job, engine, class) (rate(%s[10m]))
              /
              sum by (job, engine, class) (rate(%s[10m]))
            > %g
          ||| % [
            metric('renewal_age_ratio_bucket', 'le="0.5"'),
            metric('renewal_age_ratio_count'),
            config.lateRenewals,
          ],
          'Leases are renewed late, and will be lost if it gets worse. See what slows the store or the holder: "hasp doctor", the CPU limits of the process.',
          '{{ $value | humanizePercentage }} of the leases on ' + theClass + ' were over half their TTL old when they were renewed.',
        ),
        alert(
          'HaspLeaseForgotten',
          '',
          'warning',
          'sum by (job, engine, class) (increase(%s[1h])) > 0' % metric('forgotten_total'),
          'A program dropped a lease without releasing it: a leak in its code. Find the call with Options.RecordCallers, and release there.',
          'Leases on ' + theClass + ' dropped without Release in an hour: {{ printf "%.0f" $value }}. Each kept its key for a TTL.',
        ),
        alert(
          'HaspReleasesFail',
          '15m',
          'warning',
          |||
            sum by (job, engine, class) (rate(%s[15m]))
            /
            sum by (job, engine, class) (rate(%s[15m]))
            > %g
          ||| % [metric('release_failures_total'), metric('held_seconds_count'), config.failedReleases],
          'The store does not confirm releases, so keys stay held until their TTL ends. Look with "hasp doctor", then with "hasp leaks".',
          'The store did not confirm {{ $value | humanizePercentage }} of the releases of ' + theClass + '.',
        ),
        // A store that was restarted is held back for its max-ttl and ten seconds: that is not worth an alert.
        alert(
          'HaspNodeHeldBack',
          '5m',
          'warning',
          'sum by (job, engine) (increase(%s[2m])) > 0' % metric('held_back_total'),
          'The store grants nothing because it may have lost leases. Look with "hasp doctor" which node, and why it keeps losing its memory.',
          'Callers of job {{ $labels.job }} are held back by {{ $labels.engine }} for longer than a restart explains.',
        ),
        alert(
          'HaspStoreUnusable',
          '3m',
          'critical',
          |||
            sum by (job, engine) (increase(%s[2m])) > 0
            or
            sum by (job, engine) (increase(%s[2m])) > 0
          ||| % [
            metric('store_errors_total'),
            metric('failures_total', 'reason=~"unreachable|denied|misconfigured|full|read_only|login"'),
          ],
          'The store answers with errors, or not at all, so locks cannot be had. "hasp doctor" says what is wrong with it.',
          'Errors that job {{ $labels.job }} got from {{ $labels.engine }} in two minutes: {{ printf "%.0f" $value }}.',
        ),
        // Busy is no failure by itself: HaspJobLate sees whether the job runs at all.
        alert(
          'HaspJobFailed',
          '',
          'warning',
          'hasp_job_last_exit_status != 0 unless (hasp_job_last_busy == 1 or hasp_job_last_lost == 1)',
          'A job under a lock failed. Read what it wrote: the last line of "hasp run" says whether the command or hasp failed.',
          theJob + ' ended with status {{ $value }}.',
        ),
        // A time ahead of ours is of a wrong clock. A host that finds the key held is excused by one that does the job.
        alert(
          'HaspJobLate',
          '',
          'warning',
          |||
            (
              %(success)s < time() - %(late)d
              or
              %(success)s > time() + 600
              or
              (%(wait)s and %(wait)s offset %(late)ds unless %(success)s)
            )
            unless
            (%(busy)s == 1 and ignoring (instance) %(success)s > time() - %(late)d <= time() + 600)
          ||| % { success: success, late: config.lateJobHours * 3600, wait: ofJob('wait_seconds'), busy: ofJob('busy') },
          'A job under a lock has not succeeded for too long. Does its timer start it, does it wait for the key, does it still run?',
          theJob + ' has not succeeded for %d hours, or never, or at a time that has not come.' % config.lateJobHours,
        ),
        alert(
          'HaspJobLostLock',
          '',
          'critical',
          'hasp_job_last_lost == 1',
          'A job lost its lock while it worked, or reached --max-hold. Check what it wrote since; its fence is refused if the storage compares fences.',
          theJob + ' lost the lock in its last run.',
        ),
        alert(
          'HaspStoreDown',
          '3m',
          'critical',
          'hasp_inventory_up == 0',
          '"hasp serve" cannot list the store. "hasp doctor" on that host says what is wrong with it.',
          'The store of {{ $labels.instance }} (job {{ $labels.job }}) was not listed for three minutes.',
        ),
      ] + if config.heldHours == 0 then [] else [
        alert(
          'HaspKeyHeldLong',
          '10m',
          'warning',
          'time() - hasp_inventory_oldest_hold_start_timestamp_seconds > %d and hasp_inventory_up == 1' % (config.heldHours * 3600),
          'A key has been held for too long. Sort "hasp top" by the time held to find it; "hasp show KEY" names its holder.',
          'The oldest lease that {{ $labels.instance }} (job {{ $labels.job }}) lists is {{ $value | humanizeDuration }} old.',
        ),
      ],
    }],
  },
}
