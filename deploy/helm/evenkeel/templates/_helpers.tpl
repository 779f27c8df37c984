{{/* What everything is called: evenkeel-operator for a release of the chart's own name. */}}
{{- define "evenkeel.name" -}}
{{- if eq .Release.Name .Chart.Name -}}
evenkeel-operator
{{- else -}}
{{- printf "%s-evenkeel-operator" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "evenkeel.account" -}}
{{- .Values.serviceAccount.name | default (include "evenkeel.name" .) -}}
{{- end -}}

{{/* What finds the operator's pods, and never changes. */}}
{{- define "evenkeel.selector" -}}
app.kubernetes.io/name: evenkeel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "evenkeel.labels" -}}
{{ include "evenkeel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "evenkeel.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The one account that everything is bound to. */}}
{{- define "evenkeel.subject" -}}
- kind: ServiceAccount
  name: {{ include "evenkeel.account" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
