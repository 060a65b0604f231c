{{- /* What the schema of the values cannot say, each in a sentence. */}}
{{- define "exactlyonce-operator.validate" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: name the account that is there, or set serviceAccount.create." }}
{{- end }}
{{- range .Values.drivers.namespaces }}
{{- if and $.Values.watch.namespaces (not (has . $.Values.watch.namespaces)) }}
{{- fail (printf "drivers.namespaces: no stream of %s is watched; add it to watch.namespaces, or take it away here." .) }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.service.enabled) }}
{{- fail "metrics.serviceMonitor: it finds the operator by the Service; set service.enabled." }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasPrefix "EXACTLYONCE_OPERATOR_" .name }}
{{- fail (printf "extraEnv: %s is set by a value of the chart; use that one." .name) }}
{{- end }}
{{- end }}
{{- range $name, $_ := .Values.podLabels }}
{{- if has $name (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component") }}
{{- fail (printf "podLabels: by %s the Deployment finds its pods; choose another label." $name) }}
{{- end }}
{{- end }}
{{- end }}
