"""How the options of kube-fip-config are written: one type for each kind of value, which pydantic reads from its text.

What is refused is said in a sentence of ours: it is "must …" and never has the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
    WrapValidator,
)
from yarl import URL

from fipop.api.names import parse_go_bool
from fipop.settings.yaml import RefusedError, parse_yaml_mapping

HEALTH_PORT = 8081
"""Taken by the probes, hence a bad value for `metricsPort`."""

MAX_INTERVAL_SECONDS = 2**31 - 1
MAX_PORT = 65535
MAX_HELM_CONCURRENCY = 64
MAX_RATE = 10_000
_WHOLE = 100
_NUMBER_TEXT = re.compile(r"[-+]?[0-9]{1,10}")
_AMOUNT = re.compile(r"([0-9]{1,6})(%?)")
_MAX_URL = 2048
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_REASON = "must be a DNS label: a-z, 0-9 and -, at most"
_DNS = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_OBJECT_NAME = "([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?"
_OBJECT_NAME_REASON = "must be the name of an object: a-z, 0-9, - and ., at most 253 characters"
# https://semver.org, with the leading v that helm allows.
_NUMBER = "(0|[1-9][0-9]*)"
_VERSION = rf"(v?{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?"
_VERSION_REASON = "must be a whole version such as 0.9.9, or empty for the newest"
_DIGEST = "(sha256:[0-9a-f]{64})?"
_DIGEST_REASON = "must be sha256: and the 64 hex digits of `sha256sum`, or empty"
# Names of repositories by the OCI distribution specification; neither tag nor digest.
_PATH_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_OCI = rf"oci://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{{1,5}})?(/{_PATH_PART})+"
# A path without anything that a shell, a URL or a log would read otherwise.
_CHART_REF = rf"({_OCI}|file://(/[A-Za-z0-9_][A-Za-z0-9._-]*)+\.tgz)?"
_CHART_REF_REASON = "must be oci://<registry>/<path>/<chart> without a tag, file:///<path>.tgz, or empty"
_REPO_URL = "(https?://[!-~]+)?"
REPO_URL_REASON = "must be the http:// or https:// URL of a chart repository"


class Word(StrEnum):
    """An option with few values, in upper or lower case."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        text = str(value).strip().lower()
        return next((each for each in cls if each.lower() == text), None)


class LogLevel(Word):
    """As kube-fip-operator names them. Trace: every request too, without its body."""

    TRACE = "Trace"
    DEBUG = "Debug"
    INFO = "Info"
    WARN = "Warn"
    ERROR = "Error"
    FATAL = "Fatal"
    PANIC = "Panic"


TRACE = 5
"""The number of Trace, which Python's logging does not have."""


class GuestInstall(Word):
    """In which guest clusters fipop installs: all, none, or those whose cluster has the label."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    CLUSTER_LABEL = "clusterlabel"

    def includes(self, *, opted_in: bool) -> bool:
        """Whether fipop keeps kube-vip and its cloud provider in a guest, by whether its cluster opted in."""
        return self is GuestInstall.ENABLED or (self is GuestInstall.CLUSTER_LABEL and opted_in)


class RolloutType(Word):
    """How a changed chart or value reaches the fleet: some guest clusters at a time, or each at its next visit."""

    PROGRESSIVE = "Progressive"
    ALL = "All"


class FailureStrategy(Word):
    """What becomes of the guest clusters in which a rollout failed, whether it stopped or not."""

    ROLLBACK = "Rollback"
    STOP = "Stop"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of guest clusters, or a percentage of them."""

    number: int
    is_percent: bool = False

    def of(self, total: int) -> int:
        """Return the number for a fleet of `total` guest clusters, rounded down."""
        return self.number * total // _WHOLE if self.is_percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percent else str(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartValues:
    """The YAML of an admin for a chart: its text and its values. No repr shows them: they can have secrets."""

    text: str = field(repr=False)
    values: Mapping[str, Any] = field(repr=False, compare=False)


def parse_chart_values(text: str) -> ChartValues:
    """Read a chart's values, at most 64 KiB. Raises RefusedError."""
    return ChartValues(text=text, values=parse_yaml_mapping(text))


def _say(reason: str) -> WrapValidator:
    """Return what replaces pydantic's words about a refused value by ours."""

    def read(value: object, handler: Callable[[object], object]) -> object:
        try:
            return handler(value)
        except ValidationError:
            raise RefusedError(reason) from None

    return WrapValidator(read)


def _whole(least: int, most: int, unit: str = "") -> PlainValidator:
    def read(text: str) -> int:
        found = _NUMBER_TEXT.fullmatch(text.strip())
        if found is None or not least <= int(found[0]) <= most:
            raise RefusedError(f"must be a whole number{unit} from {least} to {most}")
        return int(found[0])

    return PlainValidator(read)


def _text(pattern: str, longest: int = 253) -> StringConstraints:
    return StringConstraints(pattern=rf"^({pattern})$", max_length=longest, strip_whitespace=True)


def _read_bool(text: str) -> bool:
    value = parse_go_bool(text.strip())
    if value is None:
        raise RefusedError("must be true or false")
    return value


def _read_amount(least: int, text: str) -> Amount:
    found = _AMOUNT.fullmatch(text.strip())
    amount = Amount(int(found[1]), is_percent=bool(found[2])) if found else None
    if amount is None or amount.number < least or (amount.is_percent and amount.number > _WHOLE):
        raise RefusedError(f"must be a whole number from {least} to 999999, or a percentage such as 10%")
    return amount


def _check_free(port: int) -> int:
    if port == HEALTH_PORT:
        raise RefusedError(f"must not be {HEALTH_PORT}, the port of the health probes")
    return port


def _check_address(url: str) -> str:
    """Refuse what the charts could not be fetched with: yarl refuses more than the standard library."""
    if url and not url.startswith("file:") and (not URL(url).host or URL(url).port == 0):
        raise ValueError
    return url


def _check_public(url: str) -> str:
    """Refuse what may be a credential: it would reach conditions, logs and helm's command line."""
    parts = urlsplit(url)
    if parts.path.endswith("/index.yaml"):
        raise RefusedError("must be the URL of the repository, without /index.yaml")
    if "@" in parts.netloc:
        raise RefusedError("must not have a user or password")
    if "?" in url or "#" in url:
        raise RefusedError(
            "must not have a query or fragment, which conditions, logs and command lines would show"
        )
    return url


Bool = Annotated[bool, PlainValidator(_read_bool)]
"""As Go reads booleans."""
AnyAmount = Annotated[Amount, PlainValidator(partial(_read_amount, 0))]
SomeAmount = Annotated[Amount, PlainValidator(partial(_read_amount, 1))]
ChartValuesText = Annotated[ChartValues, PlainValidator(parse_chart_values)]
Seconds = Annotated[int, _whole(1, MAX_INTERVAL_SECONDS, " of seconds")]
SecondsOrNone = Annotated[int, _whole(0, MAX_INTERVAL_SECONDS, " of seconds")]
HelmConcurrency = Annotated[int, _whole(1, MAX_HELM_CONCURRENCY)]
Rate = Annotated[int, _whole(1, MAX_RATE)]
Port = Annotated[int, _whole(1, MAX_PORT), AfterValidator(_check_free)]
NamespaceName = Annotated[str, _text(_LABEL, 63), _say(f"{_LABEL_REASON} 63 characters")]
ReleaseName = Annotated[str, _text(_LABEL, 53), _say(f"{_LABEL_REASON} 53 characters")]
"""With helm's own limit."""
ObjectName = Annotated[str, _text(_OBJECT_NAME), _say(_OBJECT_NAME_REASON)]
"""The name of a Secret or ConfigMap in the namespace of fipop; "" for none."""
EntryName = Annotated[str, _text(_NAME, 63), _say("must be a name: letters, digits, -, _ and ., at most 63")]
LabelKey = Annotated[str, _text(rf"({_DNS}/)?{_NAME}", 317), _say("must be the key of a label")]
LabelValue = Annotated[str, _text(rf"({_NAME})?", 63), _say("must be the value of a label, a text")]
Names = Annotated[
    tuple[str, ...], Field(min_length=1), _say("must be a list of names, and must not be empty")
]
"""An empty list would count as no list, and would select every guest cluster."""
ChartVersion = Annotated[str, _text(_VERSION, 128), _say(_VERSION_REASON)]
ChartDigest = Annotated[
    str, BeforeValidator(lambda value: str(value).lower()), _text(_DIGEST), _say(_DIGEST_REASON)
]
ChartRef = Annotated[
    str, _text(_CHART_REF, _MAX_URL), AfterValidator(_check_address), _say(_CHART_REF_REASON)
]
"""OCI, or an archive that is mounted into the pod."""
RepoUrl = Annotated[
    str,
    _text(_REPO_URL, _MAX_URL),
    AfterValidator(_check_address),
    _say(REPO_URL_REASON),
    AfterValidator(_check_public),
]
"""The empty one is valid if both charts have a reference."""
