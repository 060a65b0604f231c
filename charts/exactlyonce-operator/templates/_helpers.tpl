{{- define "exactlyonce-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "exactlyonce-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "exactlyonce-operator.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else if hasPrefix (printf "%s-" .Release.Name) $name }}
{{- $name }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The name of what stands outside the release's namespace: two releases of one name do not take each other's. */}}
{{- define "exactlyonce-operator.wideName" -}}
{{ .Release.Namespace }}:{{ include "exactlyonce-operator.fullname" . }}
{{- end }}

{{- define "exactlyonce-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "exactlyonce-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- /* The labels that the chart itself sets: commonLabels may not be one of these. */}}
{{- define "exactlyonce-operator.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/name: {{ include "exactlyonce-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: exactlyonce
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "exactlyonce-operator.labels" -}}
{{ include "exactlyonce-operator.labelsWith" (list . dict) }}
{{- end }}

{{- /* The labels of (list root labels): the object's own labels win over commonLabels, so that no key appears twice. */}}
{{- define "exactlyonce-operator.labelsWith" -}}
{{- $root := index . 0 -}}
{{- include "exactlyonce-operator.chartLabels" $root }}
{{- with merge (deepCopy (index . 1)) $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "exactlyonce-operator.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "exactlyonce-operator.fullname" .) }}
{{- end }}

{{- define "exactlyonce-operator.leaseName" -}}
{{ .Values.lease.name | default (include "exactlyonce-operator.fullname" .) }}
{{- end }}

{{- /* An image of (dict "image" … "root" …). */}}
{{- define "exactlyonce-operator.image" -}}
{{- with .root.Values.imageRegistry }}{{ . }}/{{ end -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The namespaces of drivers, as a YAML list. */}}
{{- define "exactlyonce-operator.driverNamespaces" -}}
{{ .Values.drivers.namespaces | default .Values.watch.namespaces | toYaml }}
{{- end }}

{{- define "exactlyonce-operator.operatorSubject" -}}
- kind: ServiceAccount
  name: {{ include "exactlyonce-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
