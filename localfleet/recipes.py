"""How each program of the local fleet is built: values only, no files and no processes.

The versions stand in one place, the `go.mod` files below `modules/`; what is stamped into the programs is
read from there.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

BUILD_FLAGS = ("-trimpath", "-buildvcs=false")
"""`-trimpath` also makes the result independent of where the checkout lies."""

BUILD_ENVIRONMENT: Mapping[str, str] = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-mod=readonly",
    "GOWORK": "off",
}
"""GOFLAGS is set, not emptied: Go takes an empty one for unset and then reads its own env file."""

_REQUIRE = re.compile(r"^(?:require)?\s*(?P<path>[^\s=]+)\s+(?P<version>v\d\S*)", re.MULTILINE)
_GO = re.compile(r"^go\s+(?P<version>\d+(?:\.\d+)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoMod:
    """What we read of a go.mod: the lowest Go that builds it, and the version of each module it requires."""

    lowest_go: tuple[int, ...]
    versions: Mapping[str, str]


def parse_go_mod(text: str) -> GoMod:
    """Read a go.mod. Raises ValueError where it names no Go version."""
    found = _GO.search(text)
    if found is None:
        raise ValueError("go.mod names no Go version")
    requirements = text.split("\nreplace", maxsplit=1)[0]
    return GoMod(
        lowest_go=tuple(int(part) for part in found["version"].split(".")),
        versions={match["path"]: match["version"] for match in _REQUIRE.finditer(requirements)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One program: a `package` of the Go module in the folder `module`, in the version of `pinned`.

    Without `pinned` the program is our own: the file `main.go` of that folder.

    `stamps` are values for the linker's `-X`, with `{version}`, `{major}` and `{minor}` to be filled in:
    built without them, the API server says v0.0.0 and helm says v4.3, which no one accepts as a version.
    """

    name: str
    module: str
    package: str
    pinned: str = ""
    stamps: tuple[str, ...] = ()
    is_patched: bool = False
    """Whether files of the folder `patches` replace files of the pinned module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBuild:
    """A recipe with its pinned version: everything that decides what comes out, and the key made of it."""

    recipe: Recipe
    version: str
    lowest_go: tuple[int, ...]
    ldflags: str
    key: str


def plan_build(recipe: Recipe, go_mod: str, source: str, platform: str) -> GoBuild:
    """Join a recipe with the texts of its go.mod and of its source: go.sum, or our own main.go.

    `platform` keeps machines that share a home apart.
    """
    module = parse_go_mod(go_mod)
    version = module.versions[recipe.pinned] if recipe.pinned else "v0.0.0"
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = (stamp.format(version=version, major=major, minor=minor) for stamp in recipe.stamps)
    ldflags = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in stamps)])
    digest = hashlib.sha256()
    for part in (recipe.package, ldflags, *BUILD_FLAGS, str(BUILD_ENVIRONMENT), go_mod, source, platform):
        digest.update(part.encode() + b"\0")
    return GoBuild(
        recipe=recipe,
        version=version,
        lowest_go=module.lowest_go,
        ldflags=ldflags,
        key=f"{recipe.name}-{version}-{digest.hexdigest()[:16]}",
    )


_KUBERNETES_STAMPS = tuple(
    f"k8s.io/component-base/version.{variable}={value}"
    for variable, value in (("gitVersion", "{version}"), ("gitMajor", "{major}"), ("gitMinor", "{minor}"))
)


def _kubernetes(command: str) -> Recipe:
    return Recipe(
        name=command,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{command}",
        pinned="k8s.io/kubernetes",
        stamps=_KUBERNETES_STAMPS,
    )


def _helm(module: str, *, major: int) -> Recipe:
    # helm writes the name of its file into the objects that it manages: both have the same.
    return Recipe(
        name="helm",
        module=module,
        package=f"helm.sh/helm/v{major}/cmd/helm",
        pinned=f"helm.sh/helm/v{major}",
        stamps=(f"helm.sh/helm/v{major}/internal/version.version={{version}}",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Which programs there are and where each comes from."""

    go: Mapping[str, Recipe] = field(default_factory=dict)
    debian: Mapping[str, str] = field(default_factory=dict)
    """Program to Debian package."""
    debian_large: Mapping[str, str] = field(default_factory=dict)
    """Program, which is the package's name, to its place: it comes with all the libraries that it needs."""
    on_demand: frozenset[str] = frozenset()
    """Programs that slow tests alone need: made when they are named, not with the others."""
    kubebuilder: frozenset[str] = frozenset()
    """Programs that the folder named by KUBEBUILDER_ASSETS holds, by that convention."""


def build_catalogue() -> Catalogue:
    """The programs of the local fleet, in the order in which they are wanted."""
    recipes = (
        Recipe(
            name="etcd",
            module="kubernetes",
            package="go.etcd.io/etcd/server/v3",
            pinned="go.etcd.io/etcd/server/v3",
        ),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kubectl"),
        _kubernetes("kube-scheduler"),
        Recipe(name="kwok", module="kwok", package="sigs.k8s.io/kwok/cmd/kwok", pinned="sigs.k8s.io/kwok"),
        _helm("helm", major=4),
        Recipe(
            name="registry",
            module="registry",
            package="github.com/distribution/distribution/v3/cmd/registry",
            pinned="github.com/distribution/distribution/v3",
        ),
        Recipe(
            name="kube-vip",
            module="kube-vip",
            package="github.com/kube-vip/kube-vip",
            pinned="github.com/kube-vip/kube-vip",
        ),
        Recipe(name="guest-proxy", module="guest-proxy", package="."),
        Recipe(
            name="external-dns",
            module="external-dns",
            package="sigs.k8s.io/external-dns",
            pinned="sigs.k8s.io/external-dns",
            # Without the SDKs of many clouds, and without a module for OpenShift that cannot be had everywhere.
            is_patched=True,
        ),
    )
    return Catalogue(
        go={recipe.name: recipe for recipe in recipes} | {"helm-3": _helm("helm-3", major=3)},
        debian={"prometheus": "prometheus", "promtool": "prometheus"},
        debian_large={
            "chromium": "usr/lib/chromium/chromium",
            "knot": "usr/sbin/knotd",
            "knot-dnsutils": "usr/bin/kdig",
        },
        on_demand=frozenset({"external-dns", "knot", "knot-dnsutils"}),
        kubebuilder=frozenset({"etcd", "kube-apiserver", "kubectl"}),
    )
