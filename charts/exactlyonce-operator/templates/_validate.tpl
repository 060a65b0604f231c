{{- /* What the schema of the values cannot say, each in a sentence. */}}
{{- define "exactlyonce-operator.validate" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: name the account that is there, or set serviceAccount.create." }}
{{- end }}
{{- if and .Values.watch.allNamespaces .Values.watch.namespaces }}
{{- fail "watch: namespaces names some and allNamespaces means every one; set one of the two." }}
{{- end }}
{{- if not (or .Values.watch.allNamespaces .Values.watch.namespaces) }}
{{- fail "watch: choose the namespaces whose streams the operator runs with --set 'watch.namespaces={shop,billing}', or choose all with --set watch.allNamespaces=true, which lets it read secrets and create pods in every namespace." }}
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
{{- range $name, $_ := .Values.commonLabels }}
{{- if or (hasKey (include "exactlyonce-operator.chartLabels" $ | fromYaml) $name) (eq $name "app.kubernetes.io/component") }}
{{- fail (printf "commonLabels: the chart sets %s itself; choose another label." $name) }}
{{- end }}
{{- end }}
{{- if .Values.imageRegistry }}
{{- range $value, $image := dict "image" .Values.image "drivers.image" .Values.drivers.image }}
{{- $first := splitList "/" $image.repository | first }}
{{- if and (contains "/" $image.repository) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) }}
{{- fail (printf "%s.repository: %s names a registry and imageRegistry names another; leave one of them out." $value $first) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $_ := .Values.podLabels }}
{{- if has $name (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component") }}
{{- fail (printf "podLabels: by %s the Deployment finds its pods; choose another label." $name) }}
{{- end }}
{{- end }}
{{- end }}
