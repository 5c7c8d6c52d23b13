{{- define "naiad.name" -}}
{{- printf "%s-naiad" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "naiad.selector" -}}
app.kubernetes.io/name: naiad
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "naiad.labels" -}}
{{ include "naiad.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
