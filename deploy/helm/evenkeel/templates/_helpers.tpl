{{/* The name of all objects: evenkeel-operator for a release named evenkeel. */}}
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

{{/* The selector of the operator's pods. It is immutable. */}}
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

{{/* The name of the ServiceAccount. */}}
{{- define "evenkeel.subject" -}}
- kind: ServiceAccount
  name: {{ include "evenkeel.account" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
