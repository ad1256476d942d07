"""What the tests of the chart ask of helm, and of what it rendered."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
NAMESPACE = "kube-fip"

Object = dict[str, Any]


class HelmRefusedError(Exception):
    """Helm ended with an error; the text is what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart's folder and the helm that works on it, with none of the user's settings."""

    helm: Path
    folder: Path
    home: Path

    def run(self, *arguments: str | Path) -> str:
        """Run helm; answers its stdout. Raises HelmRefusedError."""
        return _run(self.home, (str(self.helm), *map(str, arguments)), "")

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        release: str = "fipop",
        namespace: str = NAMESPACE,
        known: Iterable[str] = (),
        with_tests: bool = False,
    ) -> "Rendered":
        """Render the templates, in a cluster that also knows the API versions `known`.

        What only `helm test` makes is left out, unless `with_tests` asks for it.
        """
        text = self.template(values, release=release, namespace=namespace, known=known, with_tests=with_tests)
        return parse(text)

    def template(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        release: str = "fipop",
        namespace: str = NAMESPACE,
        known: Iterable[str] = (),
        with_tests: bool = False,
    ) -> str:
        """Render the templates as helm writes them, which YAML readers of Python and Go understand differently."""
        argv = [
            *(str(self.helm), "template", release, str(self.folder), "--namespace", namespace),
            *("--kube-version", "1.30.0"),
            *(f"--api-versions={version}" for version in known),
            *(() if with_tests else ("--skip-tests",)),
        ]
        if values is not None:
            argv += ["--values", "-"]
        return _template(self.home, tuple(argv), json.dumps(values or {}))


def _run(home: Path, argv: Sequence[str], text: str) -> str:
    done = subprocess.run(
        argv,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )
    if done.returncode:
        raise HelmRefusedError(done.stderr)
    return done.stdout


_template = cache(_run)
"""Many tests look at the same rendering: each is made once in a process."""


def parse(text: str) -> "Rendered":
    return Rendered([obj for obj in yaml.load_all(text, Loader=yaml.CSafeLoader) if obj])


class Rendered(list[Object]):
    """The rendered objects."""

    def of_kind(self, kind: str) -> list[Object]:
        return [obj for obj in self if obj["kind"] == kind]

    def only(self, kind: str, name: str | None = None) -> Object:
        """The one object of that kind (and name)."""
        (found,) = (obj for obj in self.of_kind(kind) if name in (None, obj["metadata"]["name"]))
        return found

    @property
    def pod(self) -> Object:
        """The pod that the Deployment makes."""
        pod: Object = self.only("Deployment")["spec"]["template"]
        return pod

    @property
    def container(self) -> Object:
        (container,) = self.pod["spec"]["containers"]
        found: Object = container
        return found
