"""How the options of kube-fip-config are written: one reader for each kind of value.

A reader returns the value or raises SettingsError. Its text is "must …" and never has the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from yarl import URL

from fipop.api.names import parse_go_bool
from fipop.errors import FipopError
from fipop.settings.yaml import JsonValue, YamlRefusedError, parse_yaml_mapping
from fipop.texts import is_namespace, is_object_name

HEALTH_PORT = 8081
"""Taken by the probes, hence a bad value for `metricsPort`."""

MAX_INTERVAL_SECONDS = 2**31 - 1
MAX_PORT = 65535

MAX_HELM_CONCURRENCY = 64
MAX_RATE = 10_000
_WHOLE = 100
_AMOUNT = re.compile(r"([0-9]{1,6})(%?)")
_MAX_RELEASE_NAME = 53  # helm's own limit
_NUMBER = re.compile(r"\+?[0-9]{1,10}")
# https://semver.org, with the leading v that helm allows.
_VERSION = re.compile(
    r"v?(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_MAX_VERSION = 128
# Names of repositories by the OCI distribution specification; neither tag nor digest.
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_CHART_REF = re.compile(
    rf"oci://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{{1,5}})?(?:/{_PATH_PART})+"
)
# A path without anything that a shell, a URL or a log would read otherwise.
_CHART_FILE = re.compile(r"file://(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+\.tgz")
_PORT = re.compile(r":([0-9]+)/")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_URL = 2048
REPO_URL_REASON = "must be the http:// or https:// URL of a chart repository"


class SettingsError(FipopError):
    """One value is bad; the text is "must …" and never has the value."""


class LogLevel(StrEnum):
    """As kube-fip-operator names them. Trace: every request too, without its body."""

    TRACE = "Trace"
    DEBUG = "Debug"
    INFO = "Info"
    WARN = "Warn"
    ERROR = "Error"
    FATAL = "Fatal"
    PANIC = "Panic"


class GuestInstall(StrEnum):
    """In which guests fipop installs: all, none, or those whose cluster carries the label."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    CLUSTER_LABEL = "clusterlabel"

    def includes(self, *, opted_in: bool) -> bool:
        """Whether fipop keeps kube-vip and its cloud provider in a guest, by whether its cluster opted in."""
        return self is GuestInstall.ENABLED or (self is GuestInstall.CLUSTER_LABEL and opted_in)


class RolloutType(StrEnum):
    """How a changed chart or value reaches the fleet: in gated steps, or every guest at its next pass."""

    PROGRESSIVE = "Progressive"
    ALL = "All"


class FailureStrategy(StrEnum):
    """What becomes of the guests in which a stopped rollout failed."""

    ROLLBACK = "Rollback"
    STOP = "Stop"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of guests, or a percentage of them."""

    number: int
    is_percent: bool = False

    def of(self, total: int) -> int:
        """Return the number for a fleet of `total` guest clusters, rounded down."""
        return self.number * total // 100 if self.is_percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percent else str(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartValues:
    """The YAML of an admin for a chart: its text and its values. No repr shows them: they can have secrets."""

    text: str = field(repr=False)
    values: Mapping[str, JsonValue] = field(repr=False, compare=False)


def parse_chart_values(text: str) -> ChartValues:
    """Read a chart's values, at most 64 KiB. Raises SettingsError (its reason is fit for a log)."""
    try:
        return ChartValues(text=text, values=parse_yaml_mapping(text))
    except YamlRefusedError as error:
        raise SettingsError(error.reason) from error


def parse_choice(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    """Return the reader of an enum; case does not matter."""

    def parse(text: str) -> StrEnum:
        for choice in kind:
            if text.strip().lower() == choice.value.lower():
                return choice
        raise SettingsError(f"must be one of {', '.join(choice.value for choice in kind)}")

    return parse


def parse_bool(text: str) -> bool:
    """Read a boolean as Go does."""
    value = parse_go_bool(text.strip())
    if value is None:
        raise SettingsError("must be true or false")
    return value


def _parse_number(text: str, largest: int) -> int:
    if not _NUMBER.fullmatch(text.strip()) or not 1 <= int(text) <= largest:
        raise SettingsError(f"must be a whole number from 1 to {largest}")
    return int(text)


def parse_interval(text: str) -> int:
    """Read whole seconds, at least 1."""
    return _parse_number(text, MAX_INTERVAL_SECONDS)


def parse_seconds(text: str) -> int:
    """Read whole seconds, also none."""
    return 0 if text.strip() == "0" else _parse_number(text, MAX_INTERVAL_SECONDS)


def parse_concurrency(text: str) -> int:
    """Read the maximum number of helm processes."""
    return _parse_number(text, MAX_HELM_CONCURRENCY)


def parse_rate(text: str) -> int:
    """Read the number of requests that go through one Rancher in a second."""
    return _parse_number(text, MAX_RATE)


def parse_amount(least: int) -> Callable[[str], Amount]:
    """Return the reader of a count of at least `least`, or a percentage."""

    def parse(text: str) -> Amount:
        found = _AMOUNT.fullmatch(text.strip())
        amount = Amount(int(found[1]), is_percent=bool(found[2])) if found else None
        if amount is None or amount.number < least or (amount.is_percent and amount.number > _WHOLE):
            raise SettingsError(f"must be a whole number from {least}, or a percentage such as 10%")
        return amount

    return parse


def parse_port(text: str) -> int:
    """Read a port that is free for the metrics."""
    port = _parse_number(text, MAX_PORT)
    if port == HEALTH_PORT:
        raise SettingsError(f"must not be {HEALTH_PORT}, the port of the health probes")
    return port


def _parse_label(text: str, longest: int) -> str:
    name = text.strip()
    if len(name) > longest or not is_namespace(name):
        raise SettingsError(f"must be a DNS label: a-z, 0-9 and -, at most {longest} characters")
    return name


def parse_namespace(text: str) -> str:
    """Read the name of a namespace."""
    return _parse_label(text, 63)


def parse_release_name(text: str) -> str:
    """Read the name of a helm release."""
    return _parse_label(text, _MAX_RELEASE_NAME)


def parse_repo_url(text: str) -> str:
    """Read the URL of a chart repository; "" is valid if both charts have a reference."""
    url = text.strip()
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        # yarl refuses more than the standard library, and it is what the charts are fetched with.
        legal = parts.scheme in {"http", "https"} and bool(parts.hostname) and URL(url).port != 0
    except ValueError:
        legal = False
    if not legal or len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise SettingsError(REPO_URL_REASON)
    if parts.path.endswith("/index.yaml"):
        raise SettingsError("must be the URL of the repository, without /index.yaml")
    if "@" in parts.netloc:
        # It would reach helm's command line, and logs on the way.
        raise SettingsError("must not have a user or password")
    if "?" in url or "#" in url:
        # A token's usual place.
        raise SettingsError(
            "must not have a query or fragment, which conditions, logs and command lines would show"
        )
    return url


def parse_chart_ref(text: str) -> str:
    """Read the reference of a chart: OCI, or an archive that is mounted into the pod; "" for none."""
    ref = text.strip()
    if len(ref) <= _MAX_URL and _CHART_FILE.fullmatch(ref) and "/../" not in ref:
        return ref
    if ref and (len(ref) > _MAX_URL or not _CHART_REF.fullmatch(ref)):
        raise SettingsError(
            "must be oci://<registry>/<path>/<chart> without a tag, file:///<path>.tgz, or empty"
        )
    port = _PORT.search(ref)
    if port and not 1 <= int(port[1]) <= MAX_PORT:
        raise SettingsError(f"must have a port from 1 to {MAX_PORT}")
    return ref


def parse_object_name(text: str) -> str:
    """Read the name of a Secret or ConfigMap in the namespace of fipop; "" for none."""
    name = text.strip()
    if name and not is_object_name(name):
        raise SettingsError("must be the name of an object: a-z, 0-9, - and ., at most 253 characters")
    return name


def parse_digest(text: str) -> str:
    """Read the digest that a chart's archive must have; "" for any."""
    digest = text.strip().lower()
    if digest and not _DIGEST.fullmatch(digest):
        raise SettingsError("must be sha256: and the 64 hex digits of `sha256sum`, or empty")
    return digest


def parse_version(text: str) -> str:
    """Read the version of a chart; "" for the newest."""
    version = text.strip()
    if version and (len(version) > _MAX_VERSION or not _VERSION.fullmatch(version)):
        raise SettingsError("must be a whole version such as 0.9.9, or empty for the newest")
    return version
