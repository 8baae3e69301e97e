{{- define "hasp.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name }}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "hasp.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hasp.labels" -}}
{{ include "hasp.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "hasp.probe" -}}
httpGet:
  path: /healthz
  port: http
  scheme: {{ if .Values.tls.secret }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}
