#!/bin/sh
# Build or push the image with docker, podman or buildah, whichever is there: image.sh build|push [NAME:TAG]
# BUILDER names one of them. BUILD_ARGS are more arguments of the build, PUSH_ARGS of the push. The labels of the image
# have the version of the chart, the commit (REVISION, where there is no clone) and the URL of the repository (SOURCE).
set -eu
cd "$(dirname "$0")/.."
action=$1
version=$(sed -n 's/^appVersion: *//p' Chart.yaml)
image=${2:-fipop:$version}
revision=${REVISION:-$(git describe --always --abbrev=40 --exclude='*' --dirty 2> /dev/null || true)}
for builder in ${BUILDER:-docker podman buildah}; do
    # A docker without its daemon, or a podman without cgroups, is not there.
    command -v "$builder" > /dev/null && "$builder" info > /dev/null 2>&1 || continue
    echo "$action $image with $builder"
    # shellcheck disable=SC2086 # BUILD_ARGS and PUSH_ARGS are lists of words.
    case $action in
        build) exec "$builder" build --tag "$image" --file Dockerfile --build-arg "VERSION=$version" \
            --build-arg "REVISION=$revision" --build-arg "SOURCE=${SOURCE:-}" ${BUILD_ARGS:-} . ;;
        push) exec "$builder" push ${PUSH_ARGS:-} "$image" ;;
    esac
done
echo "no working ${BUILDER:-docker, podman or buildah} found: install one of them to $action the image" >&2
exit 1
