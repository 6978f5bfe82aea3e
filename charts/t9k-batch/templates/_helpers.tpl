{{/* Labels of every object. */}}
{{- define "t9k-batch.labels" -}}
app.kubernetes.io/name: t9k-batch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Name and version of an image. Takes a dict of root and image. */}}
{{- define "t9k-batch.image" -}}
{{- $global := .root.Values.image -}}
{{- with $global.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default $global.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/*
The objects of files of the chart, in the namespace of the release. Takes a dict of root, files (a pattern) and,
optionally, annotations and except (objects to leave out, as KIND/NAME).
*/}}
{{- define "t9k-batch.objects" -}}
{{- $root := .root }}
{{- $annotations := .annotations | default dict }}
{{- $except := .except | default list }}
{{- range $path, $data := $root.Files.Glob .files }}
{{- range $text := regexSplit "(?m)^---$" (toString $data) -1 }}
{{- $object := $text | replace "t9k-system" $root.Release.Namespace | fromYaml }}
{{- if and $object (not (has (printf "%s/%s" $object.kind $object.metadata.name) $except)) }}
{{- if and (eq $object.kind "CustomResourceDefinition") (semverCompare "<1.34-0" $root.Capabilities.KubeVersion.Version) }}
{{- include "t9k-batch.withoutRankRules" $object }}
{{- end }}
{{- $_ := set $object.metadata "labels" (merge (include "t9k-batch.labels" $root | fromYaml) ($object.metadata.labels | default dict)) }}
{{- if or $annotations $object.metadata.annotations }}
{{- $_ := set $object.metadata "annotations" (merge (deepCopy $annotations) ($object.metadata.annotations | default dict)) }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Removes the rules of a job's spec that read ranks. API servers before 1.34 assume that a rank is a text of any length,
and refuse such rules because of their estimated cost. The webhook and the operator check the same.
*/}}
{{- define "t9k-batch.withoutRankRules" -}}
{{- range $version := .spec.versions }}
{{- $spec := $version.schema.openAPIV3Schema.properties.spec }}
{{- $kept := list }}
{{- range $rule := get $spec "x-kubernetes-validations" | default list }}
{{- if not (contains ".split('-'" $rule.rule) }}
{{- $kept = append $kept $rule }}
{{- end }}
{{- end }}
{{- if $kept }}
{{- $_ := set $spec "x-kubernetes-validations" $kept }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The fields that the pods of all programs have in common. Takes a dict of root, component, values and optionally
ownsFiles, which is true if the program writes to a volume.
*/}}
{{- define "t9k-batch.pod" -}}
serviceAccountName: t9k-{{ .component }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  {{- if .ownsFiles }}
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
# The replicas run on different nodes where possible, so that a lost node takes only one of them.
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        app.kubernetes.io/component: {{ .component }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The security context of a container. */}}
{{- define "t9k-batch.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The ServiceAccount of a program. Takes a dict of root, component and values. */}}
{{- define "t9k-batch.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: t9k-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "t9k-batch.labels" .root | nindent 4 }}
  {{- with .values.serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The PodDisruptionBudget of a program. It does not block a drain, because one pod at a time may be evicted. */}}
{{- define "t9k-batch.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: t9k-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "t9k-batch.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The operator's configuration file. Fields that follow from other values replace those of operator.config. */}}
{{- define "t9k-batch.operatorConfig" -}}
{{- $config := deepCopy .Values.operator.config }}
{{- $own := dict "apiVersion" "config.tensorstack.dev/v1alpha1" "kind" "OperatorConfiguration" }}
{{- $_ := set $own "metrics" (dict "bindAddress" (ternary (printf ":%d" (int .Values.metrics.port)) "0" .Values.metrics.enabled)) }}
{{- if eq .Values.certificates.source "cert-manager" }}
{{- $_ := set $own "webhook" (dict "certDir" "/etc/t9k/webhook-cert") }}
{{- end }}
{{- with .Values.console }}
{{- if and .enabled .archive.enabled .archive.logs }}
{{- $_ := set $own "jobs" (dict "logReadTime" .archive.logReadTime) }}
{{- end }}
{{- end }}
{{- if .Values.queues }}
{{- $_ := set $own "queuesFile" "/etc/t9k/queues/queues.yaml" }}
{{- end }}
{{- with .Values.tracing }}
{{- if .endpoint }}
{{- $_ := set $own "tracing" (dict "endpoint" .endpoint "samplingRatePerMillion" (int .samplingRatePerMillion)) }}
{{- end }}
{{- end }}
{{- toYaml (mergeOverwrite $config $own) }}
{{- end }}

{{/* The console's configuration file. Fields that follow from other values replace those of console.config. */}}
{{- define "t9k-batch.consoleConfig" -}}
{{- $own := dict "apiVersion" "config.tensorstack.dev/v1alpha1" "kind" "ConsoleConfiguration" }}
{{- $_ := set $own "metrics" (dict "bindAddress" (ternary (printf ":%d" (int .Values.metrics.port)) "0" .Values.metrics.enabled)) }}
{{- with .Values.console }}
{{- $server := dict }}
{{- if .tlsSecret }}
{{- $_ := set $server "certDir" "/etc/t9k-console/tls" }}
{{- end }}
{{- if .urls }}
{{- $_ := set $server "urls" .urls }}
{{- end }}
{{- if $server }}
{{- $_ := set $own "server" $server }}
{{- end }}
{{- if .clusterName }}
{{- $_ := set $own "clusterName" .clusterName }}
{{- end }}
{{- with .signIn }}
{{- if .issuer }}
{{- $signIn := dict "issuer" .issuer "clientID" .clientID "clientSecretFile" "/etc/t9k-console/sign-in/client-secret" }}
{{- if .ca }}
{{- $_ := set $signIn "caFile" "/etc/t9k-console/sign-in/ca.crt" }}
{{- end }}
{{- if .extraScopes }}
{{- $_ := set $signIn "extraScopes" .extraScopes }}
{{- end }}
{{- $_ := set $own "signIn" $signIn }}
{{- end }}
{{- end }}
{{- if and .archive.enabled (not .archive.database.secret) }}
{{- $_ := set $own "archive" (dict "address" "/var/lib/t9k-console/archive.db") }}
{{- end }}
{{- end }}
{{- toYaml (mergeOverwrite (deepCopy .Values.console.config) $own) }}
{{- end }}

{{/* The scheduler's configuration file. It has no profile for default-scheduler, because the cluster has its own. */}}
{{- define "t9k-batch.schedulerConfig" -}}
{{- $args := dict "apiVersion" "config.tensorstack.dev/v1alpha1" "kind" "T9kGangArgs" }}
{{- with .Values.tracing }}
{{- if .endpoint }}
{{- $_ := set $args "tracing" (dict "endpoint" .endpoint "samplingRatePerMillion" (int .samplingRatePerMillion)) }}
{{- end }}
{{- end -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
# With kube-scheduler's own limits, only 50 pods could start in a second.
clientConnection:
  qps: 1000
  burst: 2000
# With these times, another scheduler acts within 15 s.
leaderElection:
  resourceName: t9k-scheduler
  resourceNamespace: {{ .Release.Namespace }}
  leaseDuration: 10s
  renewDeadline: 7s
  retryPeriod: 1s
profiles:
  - schedulerName: t9k-scheduler
    pluginConfig:
      - name: T9kGang
        args:
          {{- toYaml (mergeOverwrite (deepCopy .Values.scheduler.config) $args) | nindent 10 }}
{{- end }}
