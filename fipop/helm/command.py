"""helm, by the verbs of pyhelm3: for one guest cluster, or to fetch charts.

pyhelm3 knows helm's command line. How a process runs is fipop's own: without a shell, with an environment and a folder
of its own, with a deadline, and with nothing of what it writes in a log: a guest cluster can have written that.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyhelm3

from fipop.deadlines import HELM_DEADLINE_SECONDS
from fipop.errors import ConnectionCutError
from fipop.helm.errors import HelmError, HelmFailure
from fipop.helm.process import APPLY_IN_CLIENT, STDERR_BYTES, Finished, HelmProcess
from fipop.helm.proxy import HelmTarget, RefusedAnswerError
from fipop.texts import clean

HISTORY = 10
"""The revisions of a release that helm keeps."""
_GO_MEMORY = "112MiB"
"""From where on helm's garbage collector does its best: DATA_BYTES without what a Go program never touches."""
_NO_FOLDER = "/dev/null/none"
"""Nothing can be made below it: what a guest cluster's API serves is not kept on our disk."""
_PASSED_TO_FETCHES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Charts come from the outside world, as the administrator of this process set it up; guest clusters do not."""
_CRASHED = 2
"""How a Go program ends that gets no more memory; helm's own failures end with 1."""
_LONGEST_QUOTE = 500

# The first match wins: an error of the API server can quote the words of another class. No pattern has an open end:
# each takes time that grows with the text, not with its square.
_FAILURES = tuple(
    (failure, re.compile(pattern))
    for failure, pattern in (
        (
            HelmFailure.FILES,
            r"no space left on device|disk quota exceeded|read-only file system|file too large",
        ),
        (HelmFailure.IN_PROGRESS, r"another operation \(install/upgrade/rollback\) is in progress"),
        (HelmFailure.NAME_TAKEN, r"invalid ownership metadata|cannot be imported into the current release"),
        (HelmFailure.DENIED, r"because it is being terminated"),
        (HelmFailure.NO_TLS, r"server gave http response to https client"),
        (HelmFailure.RANCHER_WEBHOOK, r"webhook \"rancher\.cattle\.io[.\"]"),
        (HelmFailure.POD_SECURITY, r"violates podsecurity"),
        (HelmFailure.CERTIFICATE, r"x509: |tls: failed to verify|certificate signed by unknown"),
        (
            HelmFailure.RENDERING,
            r"execution error|template: |\bexecuting \"|values don't meet the specifications",
        ),
        (
            HelmFailure.INVALID,
            r"is invalid|error validating|cannot be handled as|no matches for kind|unable to build",
        ),
        (HelmFailure.DENIED, r"admission webhook|failed calling webhook|admissionpolicy"),
        (
            HelmFailure.UNAUTHORIZED,
            r"unauthorized|must be logged in|provide credentials|credential not found",
        ),
        (HelmFailure.FORBIDDEN, r"forbidden"),
        (
            HelmFailure.CHART_NOT_FOUND,
            (
                r'chart "[^"\n]{1,256}"[^\n]{0,64}? not found|no chart (?:name|version) found|404 not found'
                r"|: not found\b|could not (?:be found|locate)|manifest unknown|name unknown"
            ),
        ),
        (HelmFailure.KILLED, r"context canceled|signal: (?:terminated|killed)"),
        (
            HelmFailure.UNREACHABLE,
            (
                r"cluster unreachable|connection re(?:fused|set)|i/o timeout|no such host|network is unreachable"
                r"|no route to host|handshake timeout|deadline exceeded|etcdserver|\beof\b"
                r"|server is currently unable|\b50[0234] |bad gateway|service unavailable"
            ),
        ),
        (HelmFailure.RENDERING, r"parse error|error converting yaml|failed to render"),
    )
)
_EXPLAINED = frozenset(
    {
        HelmFailure.UNREACHABLE,
        HelmFailure.UNKNOWN,
        HelmFailure.TIMED_OUT,
        HelmFailure.CERTIFICATE,
        HelmFailure.INVALID,
        HelmFailure.CHART_NOT_FOUND,
    }
)
"""Failures whose reason the proxy can know better: helm saw a failing server."""
_KIND = re.compile(r'\b([A-Z][A-Za-z]{2,40})(?:\.[a-z0-9.]{1,60})? "([a-z0-9][-a-z0-9.:]{0,100})" is invalid')
_FIELD = re.compile(
    r"is invalid: \[?([A-Za-z][A-Za-z0-9_.\[\]]{1,120}): |Go struct field [A-Za-z]{1,60}\.([A-Za-z0-9_.\[\]]{1,120})"
    r'|unknown field "([A-Za-z0-9_.\[\]]{1,120})"'
)
_TAKEN = re.compile(
    r'\b([A-Z][A-Za-z]{2,40}) "([a-z0-9][-a-z0-9.:]{0,252})" in namespace "([-a-z0-9]{0,63})" exists and cannot be'
)
_OWNER = re.compile(r'release-name" must equal "[^"\n]{1,64}": current value is "([a-z0-9][-a-z0-9.]{0,52})"')
_WEBHOOK = re.compile(r"webhook \"(rancher\.cattle\.io[-a-z0-9.]{0,64})\"")
_AS_KIND = re.compile(r"\b([A-Z][A-Za-z]{2,40}) in version \"[a-z0-9]{1,10}\" cannot be handled as")


class HelmCommand(pyhelm3.Command):  # type: ignore[misc]
    """The verbs of pyhelm3, run by fipop. `labels` are put on the record of the revision that an upgrade makes."""

    def __init__(
        self,
        helm: Helm,
        folder: Path,
        *,
        what: str,
        env: Mapping[str, str] | None = None,
        guest: HelmTarget | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            default_timeout=f"{HELM_DEADLINE_SECONDS:.0f}s",
            history_max_revisions=HISTORY,
            unpack_directory=str(folder),
        )
        self._helm, self._folder, self._what, self._guest = helm, folder, what, guest
        self._labels = ",".join(f"{name}={value}" for name, value in (labels or {}).items())
        self._env = {
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "KUBECACHEDIR": _NO_FOLDER,
            "HELM_CACHE_HOME": str(folder / "cache"),
            "HELM_CONFIG_HOME": str(folder / "config"),
            "HELM_DATA_HOME": str(folder / "data"),
            "HELM_PLUGINS": str(folder / "plugins"),
            "HELM_DRIVER": "secret",
            "GOMEMLIMIT": _GO_MEMORY,
            **(env or {}),
        }

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:  # noqa: A002 - pyhelm3's name
        """Run one helm and return what it wrote. Raises HelmError."""
        arguments = [str(each) for each in command]
        verb = arguments[0]
        # pyhelm3 has no name for the labels, nor for the other one at a rollback.
        if verb == "upgrade" and self._labels:
            arguments += ["--labels", self._labels]
        if verb in ("upgrade", "rollback"):
            arguments.append(APPLY_IN_CLIENT)
        try:
            ended = await self._helm.process(
                arguments,
                guest=self._guest,
                env=self._env,
                folder=self._folder,
                stdin=input,
            )
            # An upgrade writes the whole release: that it succeeded says enough.
            error = self._judge(verb, ended, is_read=verb != "upgrade")
        except OSError:
            error = HelmError(action=verb, subject=self._what, failure=HelmFailure.NOT_STARTED)
        self._helm.observe(verb, error is None)
        if error is not None:
            raise error
        return b"{}" if verb == "upgrade" else ended.stdout

    def _judge(self, verb: str, ended: Finished, *, is_read: bool) -> HelmError | None:
        """Return why a run failed; None if it did not."""
        # `repo update` writes to stdout why it failed. In a guest cluster, that is what the guest cluster wrote.
        said = ended.stderr if self._guest is not None else ended.stdout + ended.stderr
        words = said[-STDERR_BYTES:].decode(errors="replace")
        failure, cause = _classify(ended, words.lower(), is_read=is_read), ""
        if failure is None:
            return None
        if failure in _EXPLAINED and ended.problem is not None:
            if isinstance(ended.problem, ConnectionCutError):
                failure = HelmFailure.CUT
            else:
                failure = HelmFailure.REFUSED if isinstance(ended.problem, RefusedAnswerError) else failure
                cause = str(ended.problem)
        elif failure is HelmFailure.INVALID:
            cause = _find_field(words)
        elif failure is HelmFailure.NAME_TAKEN:
            cause = _find_taken(words)
        elif failure is HelmFailure.RANCHER_WEBHOOK:
            cause = "".join(_WEBHOOK.findall(words)[:1])
        # Only without a guest cluster: what it was led to write is quoted nowhere.
        quote = _quote(words) if self._guest is None else ""
        return HelmError(action=verb, subject=self._what, failure=failure, cause=cause, quote=quote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """Lends helm's commands. `observe` hears of each run: its verb, and whether it succeeded."""

    process: HelmProcess
    folder: Path
    """Private to this process, which empties it when it starts."""
    observe: Callable[[str, bool], None] = lambda _verb, _success: None

    @contextmanager
    def for_guest(
        self, guest: HelmTarget, what: str, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[HelmCommand]:
        """Lend helm for one guest cluster; `what` names the release in errors."""
        with self.private_folder() as folder:
            yield HelmCommand(self, folder, what=what, guest=guest, labels=labels)

    def for_charts(self, what: str, folder: Path, env: Mapping[str, str] | None = None) -> HelmCommand:
        """Return helm to fetch charts into a private folder, with the proxy and the authorities of this process."""
        passed = {name: os.environ[name] for name in _PASSED_TO_FETCHES if name in os.environ}
        return HelmCommand(self, folder, what=what, env={**passed, **(env or {})})

    @contextmanager
    def private_folder(self) -> Iterator[Path]:
        """Lend a folder that only this user can read; gone afterwards, whatever is in it. Raises HelmError."""
        try:
            lent = tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True)
        except OSError as error:
            raise HelmError(action="run", subject="helm", failure=HelmFailure.FILES) from error
        with lent as folder:
            yield Path(folder)


def empty_folder(folder: Path) -> None:
    """Remove what a killed process left, and make the folder again. Raises OSError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _classify(ended: Finished, words: str, *, is_read: bool) -> HelmFailure | None:
    if ended.timed_out:
        return HelmFailure.TIMED_OUT
    if ended.returncode < 0 or ended.returncode == _CRASHED:
        return HelmFailure.KILLED
    if ended.returncode == 0:
        return HelmFailure.TOO_MUCH if ended.is_cut and is_read else None
    return next((failure for failure, pattern in _FAILURES if pattern.search(words)), HelmFailure.UNKNOWN)


def _quote(words: str) -> str:
    """Return in one line why helm failed: helm 4 says it in several, and `template` ends with advice."""
    reason = re.split(r"^Error: ", words, flags=re.MULTILINE)[-1].partition("\n\nUse --debug")[0]
    return clean(" ".join(reason.split()), _LONGEST_QUOTE)


def _find_taken(words: str) -> str:
    """Return which object is there already, and the release that it is of, as far as helm names them."""
    found, owner = _TAKEN.search(words), _OWNER.search(words)
    if found is None:
        return ""
    kind, name, namespace = found.groups()
    return f"{kind} {namespace}/{name}".replace(" /", " ") + (
        f", which is of release {owner[1]}" if owner is not None else ", which is of no release"
    )


def _find_field(words: str) -> str:
    """Return kind, name and field path of an object that was refused, as far as helm names them; "" if it does not."""
    named, kind, path = _KIND.search(words), _AS_KIND.search(words), _FIELD.search(words)
    where = f"{named[1]} {named[2]}" if named else kind[1] if kind else ""
    return ", ".join(part for part in (where, next(filter(None, path.groups()), "") if path else "") if part)
