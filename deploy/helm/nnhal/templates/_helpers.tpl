{{- define "nnhal.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "nnhal.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nnhal.labels" -}}
{{ include "nnhal.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Probe of a service of gRPC. Kubernetes does not speak TLS in such a probe; the container checks its Unix socket then. */}}
{{- define "nnhal.probe" -}}
{{- if .root.Values.tls.secretName -}}
exec:
  command: ["healthcheck"{{ if .service }}, {{ .service | quote }}{{ end }}]
{{- else -}}
grpc:
  port: 50051
  {{- if .service }}
  service: {{ .service }}
  {{- end }}
{{- end }}
{{- end }}
