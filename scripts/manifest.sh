#!/bin/sh
# Render a chart into one file for `kubectl apply -f`: manifest.sh HELM CHART FILE [OPTION OF helm template…]
# The namespaces of the chart's secretNamespaces (Rancher makes them) must exist where it is applied.
set -eu
helm=$1
chart=$2
file=$3
shift 3
mkdir -p "$(dirname "$file")"
# Written beside and moved, so that nobody applies the half of it.
trap 'rm -f "$file.part"' EXIT
{
    cat <<NAMESPACE
apiVersion: v1
kind: Namespace
metadata:
  name: kube-fip
NAMESPACE
    # The version only has to satisfy the chart: nothing that is rendered depends on it.
    "$helm" template fipop "$chart" --namespace kube-fip --include-crds --skip-tests --kube-version 1.30.0 "$@"
} > "$file.part"
mv "$file.part" "$file"
