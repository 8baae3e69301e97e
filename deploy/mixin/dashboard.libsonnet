// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0
{
  local config = $._config,

  local selector = std.join(', ', std.filter(
    function(s) s != '', [config.selector, 'job=~"$job"', 'engine=~"$engine"', 'class=~"$class"']
  )),

  local metric(name, labels='') =
    'distributed_lock_%s{%s}' % [name, selector + (if labels == '' then '' else ', ' + labels)],
  local rate(name, labels='') = 'rate(%s[$__rate_interval])' % metric(name, labels),
  local total(name, by='') = 'sum%s (%s)' % [if by == '' then '' else ' by (%s)' % by, name],
  local inRange(name) = 'round(sum(increase(%s[$__range])))' % metric(name),
  local quantile(q, name, by='') =
    'histogram_quantile(%g, sum by (%sle) (%s))' % [q, if by == '' then '' else by + ', ', rate(name + '_bucket')],

  local source = { type: 'prometheus', uid: '${datasource}' },

  local target(expr, legend='') = { datasource: source, expr: expr, legendFormat: legend, editorMode: 'code' },

  // steps colours what is above a limit.
  local steps(limit) = { mode: 'absolute', steps: [{ color: 'green', value: null }, { color: 'red', value: limit }] },

  local panel(type, title, description, unit, targets) = {
    type: type,
    title: title,
    description: description,
    datasource: source,
    targets: [targets[i] { refId: std.char(65 + i) } for i in std.range(0, std.length(targets) - 1)],
    fieldConfig: { defaults: { unit: unit, min: 0, thresholds: { mode: 'absolute', steps: [{ color: 'green', value: null }] } }, overrides: [] },
  },

  local stat(title, description, unit, expr, limit=null) = panel('stat', title, description, unit, [target(expr)]) + {
    options: { graphMode: 'area', colorMode: 'value', textMode: 'auto', reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false } },
    [if limit != null then 'fieldConfig']+: { defaults+: { thresholds: steps(limit) } },
    width:: 4,
    height:: 4,
  },

  local graph(title, description, unit, targets, limit=null, stacked=false) = panel('timeseries', title, description, unit, targets) + {
    options: { legend: { displayMode: 'list', placement: 'bottom', showLegend: true }, tooltip: { mode: 'multi', sort: 'desc' } },
    fieldConfig+: { defaults+: {
      custom: {
        drawStyle: 'line',
        lineWidth: 1,
        fillOpacity: if stacked then 40 else 8,
        showPoints: 'never',
        spanNulls: false,
        stacking: { mode: if stacked then 'normal' else 'none', group: 'A' },
        thresholdsStyle: { mode: if limit == null then 'off' else 'line' },
      },
      [if limit != null then 'thresholds']: steps(limit),
    } },
    width:: 8,
    height:: 8,
  },

  local row(title) = { type: 'row', title: title, collapsed: false, panels: [], width:: 24, height:: 1 },

  // placed gives each panel its place, from left to right, in rows that are 24 wide.
  local placed(panels) = std.foldl(
    function(at, p)
      local wraps = at.x + p.width > 24;
      local x = if wraps then 0 else at.x;
      local y = if wraps then at.below else at.y;
      {
        x: x + p.width,
        y: y,
        below: std.max(at.below, y + p.height),
        done: at.done + [p { id: std.length(at.done) + 1, gridPos: { x: x, y: y, w: p.width, h: p.height } }],
      },
    panels,
    { x: 0, y: 0, below: 0, done: [] }
  ).done,

  local variable(name, label, within) = {
    name: name,
    label: label,
    type: 'query',
    datasource: source,
    query: { query: 'label_values(distributed_lock_held{%s}, %s)' % [within, name], refId: name },
    definition: self.query.query,
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { selected: true, text: ['All'], value: ['$__all'] },
    options: [],
    regex: '',
    hide: 0,
  },

  local failedShare = |||
    sum (%s)
    /
    sum (%s)
  ||| % [rate('wait_seconds_count', 'outcome="failed"'), rate('wait_seconds_count')],

  grafanaDashboards+:: {
    'hasp.json': {
      uid: config.dashboardUid,
      title: 'hasp / Locks',
      description: 'Waits, holders, leases and stores of programs that lock with hasp. What to do about it: ' + std.rstripChars(config.runbooks, '#'),
      tags: ['hasp-mixin'],
      schemaVersion: 39,
      version: 1,
      editable: true,
      graphTooltip: 1,
      timezone: 'browser',
      time: { from: 'now-1h', to: 'now' },
      refresh: '30s',
      links: [{ title: 'Runbooks', type: 'link', icon: 'doc', url: std.rstripChars(config.runbooks, '#'), targetBlank: true, asDropdown: false, includeVars: false, keepTime: false, tags: [], tooltip: '' }],
      annotations: { list: [{
        name: 'Lost leases',
        datasource: source,
        enable: true,
        hide: false,
        iconColor: 'red',
        expr: 'sum by (class) (increase(%s[$__rate_interval])) > 0' % metric('losses_total'),
        titleFormat: 'Lease lost: {{class}}',
        useValueForTime: false,
      }] },
      templating: { list: [
        { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', current: {}, hide: 0, includeAll: false, multi: false, options: [], refresh: 1, regex: '' },
        variable('job', 'Job', config.selector),
        variable('engine', 'Engine', std.join(', ', std.filter(function(s) s != '', [config.selector, 'job=~"$job"']))),
        variable('class', 'Class', std.join(', ', std.filter(function(s) s != '', [config.selector, 'job=~"$job"', 'engine=~"$engine"']))),
      ] },
      panels: placed([
        stat('Held', 'Leases that are held now.', 'short', total(metric('held'))),
        stat('Waiting', 'Callers that wait for a key now.', 'short', total(metric('waiters')), config.waiters),
        stat('Acquired', 'Keys granted a second.', 'ops', total(rate('wait_seconds_count', 'outcome="acquired"'))),
        stat('Ended without a lease', 'The share of calls that were refused, timed out, were cancelled, or failed.', 'percentunit', failedShare),
        stat('Lost', 'Leases that ended before their release, in the time shown.', 'short', inRange('losses_total'), 1),
        stat('Leaked', 'Leases dropped without Release, and releases that the store did not confirm, in the time shown.', 'short',
             inRange('forgotten_total') + ' + ' + inRange('release_failures_total'), 1),

        row('Waiting'),
        graph('Wait, 99th percentile', 'How long one in a hundred calls waits, by class. HaspWaitSlow fires above the line. A wait is counted when it ends.', 's',
              [target(quantile(0.99, 'wait_seconds', 'class'), '{{class}}')], config.waitSeconds),
        graph('Wait', 'How long calls wait, over all classes that are shown.', 's', [
          target(quantile(0.5, 'wait_seconds'), 'p50'),
          target(quantile(0.95, 'wait_seconds'), 'p95'),
          target(quantile(0.99, 'wait_seconds'), 'p99'),
        ]),
        graph('Waiters', 'Callers that wait now, by class. Those of a stuck holder are here, not in the percentiles.', 'short',
              [target(total(metric('waiters'), 'class'), '{{class}}')], config.waiters),
        graph('Where waiting costs most', 'Seconds that calls waited, a second: how many callers stood still on average. The ten worst classes.', 'short',
              [target('topk(10, %s)' % total(rate('wait_seconds_sum'), 'class'), '{{class}}')]),
        graph('Calls that ended without a lease', 'By reason. "held" and "canceled" are ordinary where programs try and go on.', 'ops',
              [target('%s > 0' % total(rate('failures_total'), 'reason'), '{{reason}}')], stacked=true),
        graph('Handoff', 'From a release to the next waiter that comes for the key, where the engine knows it.', 's', [
          target(quantile(0.5, 'handoff_seconds', 'engine'), '{{engine}} p50'),
          target(quantile(0.99, 'handoff_seconds', 'engine'), '{{engine}} p99'),
        ]),

        row('Holding'),
        graph('Acquired', 'Keys granted a second, by class.', 'ops',
              [target(total(rate('wait_seconds_count', 'outcome="acquired"'), 'class'), '{{class}}')]),
        graph('Held', 'Leases that are held now, by class.', 'short', [target(total(metric('held'), 'class'), '{{class}}')]),
        graph('Time held, 99th percentile', 'Of leases that ended, by class. The longer a key is held, the longer others wait.', 's',
              [target(quantile(0.99, 'held_seconds', 'class'), '{{class}}')]),

        row('Leases'),
        graph('Age at renewal', 'As a part of the TTL. A third is normal; at 1 the lease is lost. HaspRenewalsLate counts what is above the line.', 'percentunit', [
          target(quantile(0.5, 'renewal_age_ratio'), 'p50'),
          target(quantile(0.99, 'renewal_age_ratio'), 'p99'),
        ], 0.5),
        graph('Renewals', 'By result. A failed one is tried again until the deadline.', 'ops',
              [target(total(rate('renewals_total'), 'result'), '{{result}}')]),
        graph('Lost and leaked', 'Leases lost, dropped without Release, and releases that the store did not confirm.', 'short', [
          target(total('increase(%s[$__rate_interval])' % metric('losses_total')), 'lost'),
          target(total('increase(%s[$__rate_interval])' % metric('forgotten_total')), 'dropped without Release'),
          target(total('increase(%s[$__rate_interval])' % metric('release_failures_total')), 'release not confirmed'),
        ]),

        row('Store'),
        graph('Errors', 'Errors of the store that calls met which asked for a key.', 'ops',
              [target(total(rate('store_errors_total'), 'engine'), '{{engine}}')]) { width:: 12 },
        graph('Held back', 'Answers of a store that may have lost leases and grants nothing until they would have expired.', 'ops',
              [target(total(rate('held_back_total'), 'engine'), '{{engine}}')]) { width:: 12 },
      ]),
    },
  },
}
