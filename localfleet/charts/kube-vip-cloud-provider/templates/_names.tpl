{{- define "provider.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "provider.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- /* Charts before 0.2.4 know no configMapName: they read a ConfigMap of a name of their own. */}}
{{- define "provider.configMap" -}}
{{- if semverCompare "<0.2.4-0" .Chart.Version -}}
{{- printf "%s-cm" (include "provider.name" .) -}}
{{- else -}}
{{- .Values.configMapName | default "kube-vip-cloud-provider" -}}
{{- end -}}
{{- end -}}

{{- define "provider.selector" -}}
app.kubernetes.io/name: {{ include "provider.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "provider.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "provider.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
