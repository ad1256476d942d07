#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat << 'TEXT'
Build a release from the commit that is checked out, and push it.

    scripts/release.sh VERSION REGISTRY        for example 0.1.0 registry.example/platform

The image is pushed to REGISTRY/fipop:VERSION and the chart to oci://REGISTRY/charts/fipop. The files are in
out/release/VERSION: chart, manifest, wheel, bill of materials (CycloneDX) and checksums. Nothing is pushed before
everything is built. If the registry has the chart of VERSION, only the files are made again, and nothing is pushed.

Environment:
  BUILDER      docker, podman or buildah (default: the first one that works)
  BUILD_ARGS   arguments of the build, such as "--build-arg PYTHON_IMAGE=mirror.example/python:3.11"
  PUSH_ARGS    arguments of the push of the image
  SOURCE       the URL of the repository, for a label of the image
  PLAIN_HTTP   1 to push the chart over HTTP, to a registry on this machine
  HELM         the program helm (default: the one that the tests use)

Exit codes: 0 released, 1 refused or failed, 2 wrong arguments.
TEXT
}
fail() { # SENTENCE [CODE]
    echo "release: $1" >&2
    exit "${2:-1}"
}
step() { # WHAT COMMAND…
    echo "release: $1"
    "${@:2}" || fail "Could not $1."
}
agree() { # PLACE VERSION
    [ "$2" = "$version" ] || fail "$1 has the version \"$2\", not $version."
}
build_chart() {
    "$python" -m localfleet.chart "$work/chart" &&
        sed -i "/^image:/,/repository:/ s|repository: .*|repository: $registry/fipop|" "$work/chart/values.yaml" &&
        "$helm" package "$work/chart" --destination "$out"
}
build_wheel() { "$python" -m build --wheel --no-isolation --outdir "$out" . > /dev/null; }
build_sbom() {
    local pip=("$work/tool/bin/pip" --quiet --disable-pip-version-check)
    "$python" -m venv "$work/tool" && "$python" -m venv --without-pip "$work/run" &&
        "${pip[@]}" install --require-hashes -r requirements/sbom.txt &&
        "${pip[@]}" --python "$work/run/bin/python" install --require-hashes -r requirements/main.txt &&
        "${pip[@]}" --python "$work/run/bin/python" install --no-deps "$out"/*.whl &&
        "$work/tool/bin/cyclonedx-py" environment --pyproject pyproject.toml --mc-type application \
            --output-file "$out/fipop-$version.cdx.json" "$work/run"
}
build_sums() { (cd "$out" && sha256sum -- * > SHA256SUMS); }

case ${1:-} in -h | --help) usage && exit ;; esac
[ $# = 2 ] || fail "VERSION and REGISTRY are needed; --help explains them." 2
version=$1 registry=$2 semver='[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?'
[[ $version =~ ^$semver$ ]] || fail "VERSION must be like 0.1.0 or 0.2.0-rc1, not \"$version\"." 2
[[ $registry =~ ^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*$ ]] ||
    fail "REGISTRY must be a host with an optional port and path, such as registry.example/platform, not \"$registry\"." 2

cd "$(dirname "$0")/.."
changes=$(git status --porcelain 2> /dev/null) || fail "A release is made from a clone with git; this folder is none."
[ -z "$changes" ] || fail "The tree has changes that are not committed: $(head -n 1 <<< "${changes:3}")."
commit=$(git rev-parse HEAD)
[ "$(git rev-parse --quiet --verify "refs/tags/v$version^{commit}" || echo "$commit")" = "$commit" ] ||
    fail "The tag v$version names another commit than the one that is checked out."
agree pyproject.toml "$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)"
agree "version in Chart.yaml" "$(sed -n 's/^version: *//p' Chart.yaml)"
agree "appVersion in Chart.yaml" "$(sed -n 's/^appVersion: *//p' Chart.yaml)"
while IFS=: read -r file line text; do
    agree "$file, line $line" "${text##*[: ]}"
done < <(git grep -noE "(charts/fipop --version |fipop:)$semver" -- Makefile README.md docs examples)
[[ $(grep -m 1 '^## ' CHANGELOG.md) =~ ^"## $version ("[0-9]{4}-[0-9]{2}-[0-9]{2}")"$ ]] ||
    fail "The first section of CHANGELOG.md must be \"## $version (YYYY-MM-DD)\"."

python=$PWD/.venv/bin/python work=$(mktemp -d) out=$PWD/out/release/$version
trap 'rm -rf "$work"' EXIT
[ -x "$python" ] || fail "The Python environment is missing: run \`make setup\`."
helm=${HELM:-$("$python" -m localfleet.assets helm)} || fail "helm is missing and could not be built."
image=$registry/fipop:$version charts=oci://$registry/charts plain=${PLAIN_HTTP:+--plain-http}
rm -rf "$out" && mkdir -p "$out" "$work/source"
git archive "$commit" | tar -x -C "$work/source"
cd "$work/source"
if "$helm" pull "$charts/fipop" --version "$version" --destination "$out" ${plain:+"$plain"} &> /dev/null; then
    echo "release: $registry has the chart of $version already: nothing is pushed"
    image=
else
    step "build the chart" build_chart
    # What is built from is no clone.
    step "build the image" env REVISION="$commit" scripts/image.sh build "$image"
fi
step "render the manifest" scripts/manifest.sh "$helm" "$out/fipop-$version.tgz" "$out/fipop.yaml"
step "build the wheel" build_wheel
step "write the bill of materials" build_sbom
step "write the checksums" build_sums
if [ -n "$image" ]; then
    step "push the image" scripts/image.sh push "$image"
    step "push the chart" "$helm" push "$out/fipop-$version.tgz" "$charts" ${plain:+"$plain"}
fi
echo "release: the files are in out/release/$version"
