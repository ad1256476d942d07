#!/bin/sh
# Build the image with docker, podman or buildah, whichever is there: image.sh [NAME:TAG]
# BUILDER names one of them; BUILD_ARGS are more arguments of the build, as --build-arg PYTHON_IMAGE=….
set -eu
cd "$(dirname "$0")/.."
image=${1:-fipop:$(sed -n 's/^appVersion: *//p' Chart.yaml)}
for builder in ${BUILDER:-docker podman buildah}; do
    # A docker without its daemon, or a podman without cgroups, is not there.
    command -v "$builder" > /dev/null && "$builder" info > /dev/null 2>&1 || continue
    echo "building $image with $builder"
    # BUILD_ARGS is a list of words.
    # shellcheck disable=SC2086
    exec "$builder" build --tag "$image" --file Dockerfile ${BUILD_ARGS:-} .
done
echo "no working ${BUILDER:-docker, podman or buildah} found: install one of them to build the image" >&2
exit 1
