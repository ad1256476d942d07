{{- /* The name of the chart's objects: the release's, made fit for a Service, which starts with a letter and has no dots. */}}
{{- define "fipop.name" -}}
{{- $name := replace "." "-" .Release.Name -}}
{{- if not (regexMatch "^[a-z]" $name) }}{{ .Chart.Name }}-{{ end -}}
{{- $name -}}
{{- end }}

{{- define "fipop.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "fipop.labels" -}}
{{ include "fipop.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The page's pods are none of the operator's. */}}
{{- define "fipop.web.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-web
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "fipop.web.labels" -}}
{{ include "fipop.web.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The image, by digest where one is given; from the registry that Rancher was told to take all images from. */}}
{{- define "fipop.image" -}}
{{- $registry := ((.Values.global).cattle).systemDefaultRegistry -}}
{{- with .Values.image -}}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Secrets for pulling images: the chart's own, and those for all charts, as names or as {name: …}. */}}
{{- define "fipop.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (.Values.imagePullSecrets | default list) ((.Values.global).imagePullSecrets | default list) -}}
{{- $names = append $names (kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name")) -}}
{{- end -}}
{{- with uniq (compact $names) }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What `helm test` makes: not the operator's either. */}}
{{- define "fipop.test.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What all pods have in common. */}}
{{- define "fipop.pod" -}}
{{- if eq (toString .Values.hostUsers) "false" }}
hostUsers: false
{{- end }}
{{- with include "fipop.pullSecrets" . }}
{{- . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* How replicas are spread over nodes and zones. Called with (list root selector). */}}
{{- define "fipop.spread" -}}
{{- $root := index . 0 }}{{ $labels := index . 1 | fromYaml }}
affinity:
  {{- with $root.Values.affinity }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- toYaml $labels | nindent 14 }}
  {{- end }}
{{- $zones := dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway" }}
topologySpreadConstraints:
  {{- range $root.Values.topologySpreadConstraints | default (list $zones) }}
  {{- $selected := hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" (dict "matchLabels" $labels)) }}
  - {{ toYaml $selected | nindent 4 | trim }}
  {{- end }}
{{- end }}

{{- /* Outgoing connections of a NetworkPolicy: the rules, and DNS, wherever the cluster has it. Nothing without rules. */}}
{{- define "fipop.egress" -}}
{{- with . -}}
egress:
  - ports:
      - port: 53
        protocol: UDP
      - port: 53
        protocol: TCP
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Whether something is wanted: on true, and on "auto" where the cluster knows its kind. Called with (list root wanted kind). */}}
{{- define "fipop.wanted" -}}
{{- $root := index . 0 }}{{ $wanted := index . 1 | toString }}{{ $kind := index . 2 -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") ($root.Capabilities.APIVersions.Has $kind)) }}yes{{ end -}}
{{- end }}
