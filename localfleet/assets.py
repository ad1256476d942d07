"""The programs of the local fleet: found, taken from the cache, or built.

    python -m localfleet.assets [--list] [--all] [names…]

In this order: the folder that KUBEBUILDER_ASSETS names (etcd, kube-apiserver, kubectl), the cache folder
`$XDG_CACHE_HOME/fipop/assets`, a build from the pinned Go modules below `modules/`. Prometheus and promtool
are taken from PATH, else from Debian's package; so is chromium, with the libraries it needs. Blocking: meant for
before anything runs.

LOCALFLEET_KUBERNETES=1.30 chooses another Kubernetes, LOCALFLEET_HELM=3 another helm, of those that have a folder below
`modules/`.
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localfleet.cache import Cache
from localfleet.debian import unpack_package, unpack_with_dependencies
from localfleet.errors import AssetError, LocalFleetError
from localfleet.progress import Progress
from localfleet.recipes import (
    BUILD_ENVIRONMENT,
    BUILD_FLAGS,
    Catalogue,
    GoBuild,
    Recipe,
    build_catalogue,
    plan_build,
)
from localfleet.toolchain import ensure_go

MODULES = Path(__file__).parent / "modules"
KUBERNETES = "LOCALFLEET_KUBERNETES"
"""The variable that chooses the minor version of Kubernetes. etcd is the same for all."""
HELM = "LOCALFLEET_HELM"
"""The variable that chooses the major version of helm."""


def default_cache_folder(environment: Mapping[str, str]) -> Path:
    """Where the user's caches live, by the XDG convention (a relative XDG_CACHE_HOME counts as unset)."""
    home = Path(environment.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "fipop" / "assets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What is known of a program without making anything."""

    name: str
    version: str
    origin: str
    path: Path | None


@dataclass(slots=True, kw_only=True)
class Assets:
    """The door to the programs.

    The defaults are the real ones; tests give a small module and their own folders.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    modules: Path = MODULES
    catalogue: Catalogue = field(default_factory=build_catalogue)
    progress: Progress = field(default_factory=Progress)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.catalogue.go, *self.catalogue.debian, *self.catalogue.debian_large)

    @property
    def usual_names(self) -> tuple[str, ...]:
        """All but those that slow tests alone need."""
        return tuple(name for name in self.names if name not in self.catalogue.on_demand)

    def listings(self) -> tuple[Listing, ...]:
        """All programs, each with its path if it is there already. Builds nothing."""
        return tuple(self._look(name) for name in self.names)

    def ensure(self, names: Iterable[str]) -> dict[str, Path]:
        """The paths of the programs `names`; what is missing is built first.

        Raises AssetError, ToolFailedError.
        """
        listings = [self._look(name) for name in names]
        self.progress.total += sum(listing.path is None for listing in listings)
        return {listing.name: listing.path or self._make(listing.name) for listing in listings}

    def _look(self, name: str) -> Listing:
        given = self.environment.get("KUBEBUILDER_ASSETS")
        # A chosen version that is silently another one would be a lie.
        if given and name in self.catalogue.kubebuilder and not self.environment.get(KUBERNETES):
            return Listing(
                name=name, version="as given", origin="KUBEBUILDER_ASSETS", path=_given(name, Path(given))
            )
        if name in self.catalogue.go:
            plan = self._plan(name)
            folder = self._cache.find(plan.key)
            path = folder and folder / plan.recipe.name
            return Listing(name=name, version=plan.version, origin="Go module", path=path)
        if name in self.catalogue.debian or name in self.catalogue.debian_large:
            return self._look_for_debian(name)
        raise AssetError(
            name=name, problem=f"not a program of the local fleet; these are: {', '.join(self.names)}"
        )

    def _look_for_debian(self, name: str) -> Listing:
        on_path = shutil.which(name, path=self.environment.get("PATH"))
        if on_path:
            return Listing(name=name, version="as found", origin="PATH", path=Path(on_path))
        folder = self._cache.find(self._debian_key(name))
        return Listing(
            name=name, version="Debian's", origin="Debian package", path=folder and _in_debian(folder, name)
        )

    def _make(self, name: str) -> Path:
        if name in self.catalogue.debian:
            package = self.catalogue.debian[name]
            with self.progress.step(f"{name} (Debian package)"):
                return _in_debian(
                    self._fill(self._debian_key(name), unpack_package(package, progress=self.progress)), name
                )
        if name in self.catalogue.debian_large:
            unpack = unpack_with_dependencies(name, self.catalogue.debian_large[name], progress=self.progress)
            with self.progress.step(f"{name} (Debian packages)"):
                return _in_debian(self._fill(self._debian_key(name), unpack), name)
        plan = self._plan(name)
        go = ensure_go(
            plan.lowest_go,
            cache=self._cache,
            requirements=self.modules / "toolchain.txt",
            progress=self.progress,
            search_path=self.environment.get("PATH"),
        )
        with self.progress.step(f"{name} {plan.version}"):
            return self._fill(plan.key, lambda folder: self._build(plan, go, folder)) / plan.recipe.name

    def _fill(self, key: str, fill: Callable[[Path], None]) -> Path:
        return self._cache.make(key, fill, on_wait=lambda: self.progress.tick("waits for another builder"))

    def _build(self, plan: GoBuild, go: Path, folder: Path) -> None:
        target = folder / plan.recipe.name
        with tempfile.TemporaryDirectory() as name:
            module = self._module(plan.recipe)
            if plan.recipe.is_patched:
                module = self._patch(plan, go, Path(name) / "module")
            self._run_go(
                *(go, "build", *BUILD_FLAGS, "-ldflags", plan.ldflags, "-o", target, plan.recipe.package),
                folder=module,
            )

    def _patch(self, plan: GoBuild, go: Path, folder: Path) -> Path:
        """Make a copy of the module that builds a copy of the pinned one, with our files in place of some of its."""
        pinned, source = plan.recipe.pinned, folder / "source"
        shutil.copytree(self._module(plan.recipe), folder)
        self._run_go(go, "mod", "download", pinned, folder=folder)
        place = self._run_go(go, "list", "-m", "-f", "{{.Dir}}", pinned, folder=folder).strip()
        shutil.copytree(place, source, copy_function=shutil.copyfile)
        for each in (source, *source.rglob("*")):
            if each.is_dir():
                each.chmod(0o755)  # Go's cache cannot be written
        shutil.copytree(folder / "patches", source, dirs_exist_ok=True)
        self._run_go(go, "mod", "edit", f"-replace={pinned}=./source", folder=folder)
        return folder

    def _run_go(self, *argv: str | Path, folder: Path) -> str:
        # Go's compiler collects garbage as if memory were dear; what comes out is the same.
        environment = {"GOGC": "400", **BUILD_ENVIRONMENT}
        return self.progress.run([str(each) for each in argv], folder=folder, environment=environment)

    def _plan(self, name: str) -> GoBuild:
        recipe = self._recipe(name)
        folder = self._module(recipe)
        system = f"{platform.system()}-{platform.machine()}"
        sources = [folder / ("go.sum" if recipe.pinned else "main.go"), *sorted(folder.rglob("*/**/*.go"))]
        source = "".join(each.read_text() for each in sources)
        return plan_build(recipe, (folder / "go.mod").read_text(), source, system)

    def _recipe(self, name: str) -> Recipe:
        chosen = self.environment.get(HELM) if name == "helm" else ""
        key = f"{name}-{chosen}" if chosen else name
        if key not in self.catalogue.go:
            raise AssetError(name=name, problem=f'{HELM} must be 3, or empty, not "{chosen}"')
        return self.catalogue.go[key]

    def _module(self, recipe: Recipe) -> Path:
        chosen = self.environment.get(KUBERNETES)
        if not chosen or recipe.pinned != "k8s.io/kubernetes":
            return self.modules / recipe.module
        versions = sorted(path.name.partition("-")[2] for path in self.modules.glob(f"{recipe.module}-*"))
        if chosen not in versions:
            problem = f'{KUBERNETES} must be one of {", ".join(versions)}, or empty, not "{chosen}"'
            raise AssetError(name=recipe.name, problem=problem)
        return self.modules / f"{recipe.module}-{chosen}"

    def _debian_key(self, name: str) -> str:
        return f"debian-{self.catalogue.debian.get(name, name)}-{platform.machine()}"

    @property
    def _cache(self) -> Cache:
        return Cache(default_cache_folder(self.environment))


def ensure(name: str) -> Path:
    """The path of one program, built first where it is missing."""
    return Assets().ensure([name])[name]


def ensure_all(*names: str) -> dict[str, Path]:
    """The paths of several programs by name, those that are missing built first; without names, of the usual ones."""
    assets = Assets()
    return assets.ensure(names or assets.usual_names)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m localfleet.assets", description="Find or build the local fleet's programs."
    )
    parser.add_argument("names", nargs="*", help="without: all but those that slow tests alone need")
    parser.add_argument("--all", action="store_true", help="those of slow tests, too")
    parser.add_argument("--list", action="store_true", help="show what is there, build nothing")
    chosen = parser.parse_args(arguments)
    assets = Assets()
    try:
        if chosen.list:
            for listing in assets.listings():
                place = listing.path or "missing"
                print(f"{listing.name:<24} {listing.version:<10} {listing.origin:<18} {place}")
        else:
            for path in assets.ensure(
                chosen.names or (assets.names if chosen.all else assets.usual_names)
            ).values():
                print(path)
    except LocalFleetError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # the progress has said which build was interrupted
    return 0


def _given(name: str, folder: Path) -> Path:
    path = folder / name
    if not path.is_file():
        raise AssetError(
            name=name,
            problem=f"KUBEBUILDER_ASSETS is {folder}, which holds no {name}: unset it or complete it",
        )
    return path


def _in_debian(folder: Path, name: str) -> Path:
    return folder / "usr" / "bin" / name


if __name__ == "__main__":
    sys.exit(main())
