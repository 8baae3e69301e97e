// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0
//
// Alerts and a dashboard for programs that export hasp's metrics. Import it into your own
// jsonnet and override what differs:
//
//   (import 'mixin.libsonnet') + { _config+:: { selector: 'cluster="eu"', waitSeconds: 5 } }
(import 'config.libsonnet') +
(import 'alerts.libsonnet') +
(import 'dashboard.libsonnet')
