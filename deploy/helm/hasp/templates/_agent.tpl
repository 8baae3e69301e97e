{{/*
The agent beside a program of yours: its container, a native sidecar (Kubernetes 1.29), which the kubelet starts before the program and ends after it,
and the volume of the socket. In the pod of your own chart, which has this one among its dependencies:

  initContainers:
  - {{- include "hasp.agent" (dict "Values" .Values.hasp "Chart" .Subcharts.hasp.Chart) | nindent 4 }}
  volumes:
  - {{- include "hasp.agent.volume" . | nindent 4 }}
  containers:
  - env: [{name: HASP_AGENT, value: "unix:/run/hasp/agent.sock"}]
    volumeMounts: [{name: hasp-agent, mountPath: /run/hasp}]
*/}}
{{- define "hasp.agent" -}}
name: hasp-agent
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args: [agent, --listen, "unix:/run/hasp/agent.sock"]
env:
- name: HASP_STORE
  valueFrom:
    secretKeyRef:
      name: {{ required "store.secret: the secret that has the URL of the store" .Values.store.secret | quote }}
      key: {{ .Values.store.key | quote }}
- {name: XDG_STATE_HOME, value: /run/hasp}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
- {name: hasp-agent, mountPath: /run/hasp}
{{- end }}
{{- define "hasp.agent.volume" -}}
name: hasp-agent
emptyDir: {sizeLimit: 16Mi}
{{- end }}
