"""The exception tree of fipop. Every error has typed fields and writes its own message.

FipopError
├── IpamError                 the core: pools and allocation (values that conditions quote)
│   ├── AddressSyntaxError        a text is no address
│   ├── PoolSyntaxError           a part of a pool text is wrong; quotes it and its position
│   ├── PoolTooLargeError         a pool text is longer, or has more parts, than is read
│   ├── RangeUnknownError         the address space has no range of that name
│   ├── RangeDrainingError        the range assigns nothing new
│   ├── FamilyMissingError        the range has no address of that family
│   ├── RangeFullError            nothing is free
│   ├── AddressOutOfRangeError    the range does not assign that address, and why
│   ├── PoolFamilyMissingError    a pool of a guest has no address of that family
│   └── PoolExhaustedError        a pool of a guest has none left
├── ApiError                  one call to a Kubernetes API, translated once at the door (kube.client)
│   ├── ApiConflictError          409: the object changed since it was read, or a precondition failed
│   ├── ApiAlreadyExistsError     409: the name is taken
│   ├── ApiInvalidError           422 and 400: the server refuses the object as it is
│   ├── ApiForbiddenError         403
│   │   └── NamespaceTerminatingError
│   ├── ApiNotFoundError          404 that is not about the object: see there
│   ├── ApiUnauthorizedError      401
│   ├── ApiGoneError              410: the resourceVersion is too old
│   ├── ApiThrottledError         429, with the server's Retry-After
│   ├── ApiServerError            5xx: a write can be committed nevertheless
│   │   └── ApiAnswerError            no Kubernetes answer at all: a redirect, too large, not JSON
│   └── ApiUnreachableError       no answer: refused, cut, timed out; a write can be committed
├── StartError                what the program is started with is missing or cannot be used
├── NotLeadingError           a write by a replica that does not lead, or not any more; nothing was sent
├── KubeAccessError           no way to an API server: a kubeconfig, token or certificate that cannot be used
├── AuthorityReplacedError    the API server's certificate authority is another one than at the start
├── WatcherEndedError         the thread that watches ended unexpectedly
├── GuestError                one guest cluster: its kubeconfig, its API, its releases
│   ├── GuestUnreadableError      the addresses of the guest cluster could not be read
│   ├── KubeconfigError           a field of the kubeconfig is refused
│   ├── PassTimeoutError          the visit of a guest cluster exceeded its deadline
│   ├── HelmError                 a helm process failed, by the class of its failure
│   ├── ChartError                a chart is not available, or is another one
│   ├── ReleaseRecordError        a release's Secret cannot be read
│   ├── InstallBlockedError       a foreign release blocks the install
│   │   ├── ForeignReleaseError   it has the labels of fipop in a foreign namespace
│   │   └── ReleaseTakenError     it has the wanted name
│   ├── KubeconfigMissingError    (operator.kubeconfigs) the Secret of Rancher is missing or has none
│   ├── NotConnectedError         (operator.kubeconfigs) Rancher is not connected to the guest
│   ├── TooManyAddressesError     (guest.in_use) a guest names more addresses than are read
│   └── AddressConflictError      another guest cluster uses the address
└── in the modules that raise them: SettingsError and YamlRefusedError (one bad value of kube-fip-config),
    SpecError and ContendedError (one floating IP), RestoredStoreError and
    LeaderWorkStuckError (the process)
"""

from __future__ import annotations

from enum import StrEnum

from fipop.texts import clean


class FipopError(Exception):
    """Base of all errors that fipop raises on purpose.

    The text is a clause that can be quoted after a colon: `texts.sentence` makes a sentence of it for conditions,
    events and the command line. Its remedy, if it has one, is a sentence without the full stop.
    """


class ApiError(FipopError):
    """A call to a Kubernetes API failed.

    `status` is the HTTP status (0 when no answer came), `reason` the machine-readable reason of the answer's
    Status object (never its free text: remote texts are not shown).
    """

    outcome_unknown = False
    """Whether a write that failed so can be committed: the caller must read the object first."""

    def __init__(
        self,
        *,
        verb: str,
        kind: str,
        name: str | None = None,
        namespace: str | None = None,
        status: int = 0,
        reason: str = "",
    ) -> None:
        self.verb = verb
        self.kind = kind
        self.name = name
        self.namespace = namespace
        self.status = status
        self.reason = reason
        super().__init__(self._message())

    def _message(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        what = f"{self.kind} {place}".rstrip()
        answer = " ".join(part for part in (str(self.status) if self.status else "", self.reason) if part)
        return f"could not {self.verb} {what}: {answer or 'the API server did not answer'}"


class ApiConflictError(ApiError):
    """409 Conflict: the resourceVersion or a precondition (uid) no longer holds. Read again, then decide."""


class ApiAlreadyExistsError(ApiError):
    """409 AlreadyExists: an object of that name is there. Look who owns it."""


class ApiInvalidError(ApiError):
    """422 or 400: the server refuses the object or the patch as it is; do not retry it unchanged."""


class ApiForbiddenError(ApiError):
    """403: RBAC, an admission policy or a terminating namespace refused it."""


class NamespaceTerminatingError(ApiForbiddenError):
    """403 with cause NamespaceTerminating: nothing can be created there any more."""


class ApiNotFoundError(ApiError):
    """404 that is not about the object: the resource, subresource or namespace is unknown, or a proxy answered.

    A missing object is not an error: get returns None and delete returns False.
    """


class ApiUnauthorizedError(ApiError):
    """401: the credential is unknown or has expired."""


class ApiGoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class ApiThrottledError(ApiError):
    """429: not done; try again after `retry_after_seconds`."""

    def __init__(self, *, retry_after_seconds: float = 1.0, **fields: object) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(**fields)  # type: ignore[arg-type]


class ApiServerError(ApiError):
    """5xx: the server failed; a write can be committed."""

    outcome_unknown = True


class ApiAnswerError(ApiServerError):
    """What came is no answer of a Kubernetes API: a redirect, too large, compressed unasked, not JSON."""


class ApiUnreachableError(ApiError):
    """No answer: connection refused, cut, or the deadline passed; a write can be committed.

    `reason` is one of ConnectionRefused, ConnectionFailed, NameResolution, CertificateInvalid,
    TlsHandshake, AddressRefused, ProxyRefused, ConnectionCut, Timeout, NoAnswerYet.
    """

    outcome_unknown = True

    def __init__(self, *, outcome_unknown: bool = True, **fields: object) -> None:
        self.outcome_unknown = outcome_unknown
        super().__init__(**fields)  # type: ignore[arg-type]


PASSING_ERRORS = (ApiServerError, ApiThrottledError, ApiUnreachableError)
"""What an API server answers while it is in trouble: no fault of the object, and no reason to pass it over."""


class IpamError(FipopError):
    """The core refuses; families are named as Kubernetes names them, addresses are canonical texts."""


def _quote(text: str, limit: int = 64) -> str:
    """Return a text of a user in quotes, printable and cut."""
    return f'"{clean(text, limit)}"'


class AddressSyntaxError(IpamError):
    """A text is no address; `problem` continues the sentence after the text."""

    def __init__(self, *, text: str, problem: str) -> None:
        self.text = text
        self.problem = problem
        super().__init__(f"{_quote(text)} {problem}")


class PoolSyntaxError(IpamError):
    """A part of a pool text is wrong. `where` names the text (the pool, exclusion 2), `position` counts from 1."""

    def __init__(self, *, text: str, where: str, part: str, position: int, problem: str) -> None:
        self.text = text
        self.where = where
        self.part = part
        self.position = position
        self.problem = problem
        super().__init__(f"part {position} of {where}, {_quote(part)}, {problem}")


class PoolTooLargeError(IpamError):
    """A pool text is longer, or has more parts, than is read; `unit` is characters or parts."""

    def __init__(self, *, where: str, found: int, limit: int, unit: str) -> None:
        self.where = where
        self.found = found
        self.limit = limit
        self.unit = unit
        super().__init__(
            f"{where} must have at most {limit} {unit}: it has {found}. Split it into several ranges"
        )


class RangeUnknownError(IpamError):
    """The address space has no range of that name."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(f"range {_quote(range_name)} does not exist in this address space")


class AddressSpaceChangedError(IpamError):
    """The range was created again in another address space while addresses of its name are used in the former one."""

    def __init__(self, *, range_name: str, former: str, space: str) -> None:
        self.range_name = range_name
        self.former = former
        self.space = space
        super().__init__(
            f"range {_quote(range_name)} assigns no addresses: it is in address space {_quote(space)} now, and its "
            f"addresses in {_quote(former)} are held or in quarantine. Create the range with another name"
        )


class RangeDrainingError(IpamError):
    """The range is being drained: it assigns nothing new."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(
            f"range {_quote(range_name)} is draining and assigns no addresses. Use another range"
        )


class FamilyMissingError(IpamError):
    """The pool has no address of the family; `families` are those that it has."""

    def __init__(self, *, range_name: str, pool_text: str, family: str, families: tuple[str, ...]) -> None:
        self.range_name = range_name
        self.pool_text = pool_text
        self.family = family
        self.families = families
        has = f"it has only {' and '.join(families)}" if families else "it has no addresses to assign"
        super().__init__(
            f"range {_quote(range_name)} ({_quote(pool_text)}) has no {family}: {has}. Extend spec.iprange of the range"
        )


class RangeFullError(IpamError):
    """No address of the family is free.

    The message has no counts: it is in the status of all waiting floating IPs, and each change is a write.
    """

    def __init__(self, *, range_name: str, family: str) -> None:
        self.range_name = range_name
        self.family = family
        super().__init__(
            f"range {_quote(range_name)} is full: every {family} address is held or in quarantine. "
            "Delete unused FloatingIPs or extend spec.iprange"
        )


class AddressOutOfRangeError(IpamError):
    """The range does not assign the address; `reason` ends the clause, `older_range` owns an overlap."""

    def __init__(
        self, *, address: str, range_name: str, pool_text: str, reason: str, older_range: str | None = None
    ) -> None:
        self.address = address
        self.range_name = range_name
        self.pool_text = pool_text
        self.reason = reason
        self.older_range = older_range
        super().__init__(
            f"range {_quote(range_name)} ({_quote(pool_text)}) does not assign {address}: the address {reason}"
        )


class PoolFamilyMissingError(IpamError):
    """The pool of a key has no address of a family at all."""

    def __init__(self, *, key: str, family: str) -> None:
        self.key = key
        self.family = family
        super().__init__(f"key {key} has no {family} address. Add an {family} pool to the key")


class PoolExhaustedError(IpamError):
    """Every address of a family that the pool of a key assigns is in use; `total` is how many it has."""

    def __init__(self, *, key: str, family: str, total: int) -> None:
        self.key = key
        self.family = family
        self.total = total
        super().__init__(
            f"key {key} is full: all of its {total} {family} addresses are in use. "
            "Delete unused Services or extend the key"
        )


class GuestError(FipopError):
    """One guest cluster cannot be dealt with as wanted; the others do not suffer."""


class AddressConflictError(GuestError):
    """An address must not be written to the guest cluster of its owner: another guest cluster uses it."""

    def __init__(self, *, address: str, carrier: str) -> None:
        self.address = address
        self.carrier = carrier
        super().__init__(
            f"address {address} was not written to this guest cluster: {carrier}. Remove the address there, or set "
            "annotation kubefip.k8s.binbash.org/ignore-claim to the id of that guest cluster"
        )


class GuestUnreadableError(GuestError):
    """A guest cannot be asked what it carries: its API, or the way to it, failed."""

    def __init__(self, *, guest_id: str, cause: str) -> None:
        self.guest_id = guest_id
        self.cause = cause
        super().__init__(f"could not read guest cluster {guest_id}: {cause}")


class KubeconfigError(GuestError):
    """A field of a guest cluster's kubeconfig is missing, malformed or refused. Its value is never shown."""

    def __init__(self, *, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"the kubeconfig's {field} {reason}")


class PassTimeoutError(GuestError):
    """The pass over a guest was broken off at its deadline."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"the reconciliation of the guest cluster was stopped at its deadline of {seconds:.0f} s"
        )


class HelmFailure(StrEnum):
    """Why a helm process failed, as classified from its output; the value completes a clause."""

    NOT_STARTED = "the helm program could not be started"
    TIMED_OUT = "it took longer than its deadline"
    KILLED = "it was killed"
    FILES = "it could not write its files. Check whether the disk is full or read-only"
    UNREACHABLE = "the cluster or the chart's source did not answer"
    UNAUTHORIZED = "the credential is not accepted"
    FORBIDDEN = "the credential does not have the right to do that"
    DENIED = "an admission webhook or policy of the cluster refused it"
    REFUSED = "fipop refused the answer of the cluster"
    TOO_MUCH = "it wrote more output than fipop reads"
    CHART_NOT_FOUND = "there is no such chart or version"
    CERTIFICATE = "the server's certificate is not trusted"
    RENDERING = "the chart cannot be rendered with these values"
    INVALID = "the cluster refused an object of the chart"
    NAME_TAKEN = "an object of that name belongs to something else"
    IN_PROGRESS = "another operation on the release is under way"
    NAMESPACE_TERMINATING = "the namespace is being deleted"
    UNKNOWN = "its output names no known cause"


class HelmError(GuestError):
    """A helm process failed. Its output is classified and never shown.

    `cause` is a clause of fipop about refused requests; "" if none was refused.
    """

    def __init__(self, *, action: str, subject: str, failure: HelmFailure, cause: str = "") -> None:
        self.action = action
        self.subject = subject
        self.failure = failure
        self.cause = cause
        super().__init__(
            f"helm {action} of {subject} failed: {failure.value}" + (f": {cause}" if cause else "")
        )


class ChartError(GuestError):
    """A chart is not available. `source` is as in the options: the URL of a repository or an `oci://` reference.

    `condition` is the reason of its condition.
    """

    def __init__(self, *, source: str, version: str, reason: str, condition: str = "ReleaseFailed") -> None:
        self.source = source
        self.version = version
        self.reason = reason
        self.condition = condition
        super().__init__(f"chart {source} {version or '(newest)'} cannot be used: {reason}")


class ReleaseRecordError(GuestError):
    """The Secret in which helm keeps a release holds no release that can be read."""

    def __init__(self, *, namespace: str, name: str, reason: str) -> None:
        self.namespace = namespace
        self.name = name
        self.reason = reason
        super().__init__(f"could not read release {namespace}/{name}: {reason}")


class InstallBlockedError(GuestError):
    """A foreign release blocks the install; `condition` is the reason of the condition."""

    condition: str


class ForeignReleaseError(InstallBlockedError):
    """A release has the labels of fipop in a foreign namespace: nothing is installed beside it.

    Without a name: not all releases in foreign namespaces can be read, so that one can have them.
    """

    condition = "ForeignRelease"

    def __init__(self, *, namespace: str = "", name: str = "") -> None:
        super().__init__(
            f"release {namespace}/{name} has the labels of fipop in a namespace that fipop does not use. Delete it, "
            f"or add {namespace} to kubevipReleaseNamespaces if fipop installed it"
            if name
            else "namespaces that fipop does not use have more records of releases than it reads. Delete Secrets with "
            "the label owner=helm there"
        )


class ReleaseTakenError(InstallBlockedError):
    """A foreign release has the configured name; it is left alone."""

    condition = "ReleaseTaken"

    def __init__(self, *, namespace: str, name: str, role: str) -> None:
        self.namespace = namespace
        self.name = name
        self.role = role
        super().__init__(
            f"release {namespace}/{name} is not the {role} of fipop or of kube-fip-operator. Remove it, or "
            "choose another name or namespace for the release of fipop"
        )


class StartError(FipopError):
    """What the program is started with is missing or cannot be used; `problem` continues the sentence after `what`."""

    def __init__(self, *, what: str, problem: str) -> None:
        self.what = what
        self.problem = problem
        super().__init__(f"{what} {problem}")


class NotLeadingError(FipopError):
    """A write by a replica that does not lead, or not any more; nothing was sent."""

    def __init__(self, *, verb: str, kind: str) -> None:
        self.verb = verb
        self.kind = kind
        super().__init__(f"could not {verb} {kind}: this replica does not lead")


class KubeAccessError(FipopError):
    """There is no way to an API server as configured; nothing was sent."""

    def __init__(self, *, server: str, problem: str) -> None:
        self.server = server
        self.problem = problem
        super().__init__(f"could not connect to {server or 'the API server'}: {problem}")


class AuthorityReplacedError(FipopError):
    """The certificate authority that a server is known by was replaced: the process must restart."""

    def __init__(self, *, server: str, path: str) -> None:
        self.server = server
        self.path = path
        super().__init__(
            f"the certificate authority of {server} was replaced in {path}: the process must restart"
        )


class WatcherEndedError(FipopError):
    """The thread that watches ended unexpectedly: the process must restart."""

    def __init__(self) -> None:
        super().__init__("the thread that watches ended unexpectedly")
