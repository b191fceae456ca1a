{{- define "compaction-proxy.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "compaction-proxy.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "compaction-proxy.labels" -}}
{{ include "compaction-proxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "compaction-proxy.image" -}}
{{- if .Values.image.digest }}{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}{{ else }}{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}{{ end -}}
{{- end -}}

{{- define "compaction-proxy.secret" -}}
{{- if .Values.secrets.existing }}{{ .Values.secrets.existing }}{{ else if .Values.secrets.values }}{{ include "compaction-proxy.name" . }}{{ end -}}
{{- end -}}

{{- define "compaction-proxy.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ include "compaction-proxy.name" . }}{{ else }}default{{ end -}}
{{- end -}}

{{- define "compaction-proxy.probe" -}}
{{- if .root.Values.tls.clientCA -}}
tcpSocket: {port: http}
{{- else -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ if .root.Values.tls.secret }}HTTPS{{ else }}HTTP{{ end }}}
{{- end }}
{{- end -}}
