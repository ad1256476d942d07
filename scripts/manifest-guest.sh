#!/bin/sh
# Put an image into examples/guest-cloud-provider.yaml, for `kubectl apply -f`: manifest-guest.sh FILE IMAGE
set -eu
file=$1
image=$2
example=$(dirname "$0")/../examples/guest-cloud-provider.yaml
mkdir -p "$(dirname "$file")"
trap 'rm -f "$file.part"' EXIT
# A name of an image has no | (the OCI's grammar of references).
case $image in
    "" | *[!A-Za-z0-9._/:@-]*) echo "manifest-guest: \"$image\" is no name of an image" >&2; exit 2 ;;
esac
sed "s|^\( *image: \).*|\1$image|" "$example" > "$file.part"
mv "$file.part" "$file"
