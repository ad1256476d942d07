"""The exception tree of fipop. Every error has typed fields and writes its own message.

FipopError
├── IpamError                 the core: pools and allocation (values that conditions quote)
│   ├── AddressSyntaxError        a text is no address
│   ├── PoolSyntaxError           a part of a pool text is wrong; quotes it and its position
│   ├── PoolTooLargeError         a pool text is longer, or has more parts, than is read
│   ├── RangeUnknownError         the address space has no range of that name
│   ├── RangeDrainingError        the range gives out nothing new
│   ├── FamilyMissingError        the range has no address of that family
│   ├── RangeFullError            nothing is free
│   ├── AddressOutOfRangeError    the range does not give out that address, and why
│   ├── PoolFamilyMissingError    a pool of a guest has no address of that family
│   └── PoolExhaustedError        a pool of a guest has none left
├── ApiError                  one call to a Kubernetes API, translated once at the door (kube.client)
│   ├── ApiConflictError          409: the object changed since it was read, or a precondition failed
│   ├── ApiAlreadyExistsError     409: the name is taken
│   ├── ApiInvalidError           422 and 400: the server refuses the object as it is
│   ├── ApiForbiddenError         403
│   │   └── NamespaceTerminatingError
│   ├── ApiNotFoundError          404 where that is no answer: see there
│   ├── ApiUnauthorizedError      401
│   ├── ApiGoneError              410: the resourceVersion is too old
│   ├── ApiThrottledError         429, with the server's Retry-After
│   ├── ApiServerError            5xx: a write may have been committed all the same
│   │   └── ApiAnswerError            no Kubernetes answer at all: a redirect, too large, not JSON
│   └── ApiUnreachableError       no answer: refused, cut, timed out; a write may have been committed
├── StartError                what the program is started with is missing or cannot be used
├── NotLeadingError           a write by a replica that does not lead, or not any more; nothing was sent
├── KubeAccessError           no way to an API server: a kubeconfig, token or certificate that cannot be used
├── AuthorityReplacedError    the API server's certificate authority is another one than at the start
├── WatcherEndedError         the thread that watches ended by itself
├── GuestError                one guest cluster: its kubeconfig, its API, its releases
│   ├── GuestUnreadableError      the guest cannot be asked what it carries
│   ├── KubeconfigError           a field of the kubeconfig is refused
│   ├── PassTimeoutError          the pass over a guest took longer than it may
│   ├── HelmError                 a helm process failed, by the class of its failure
│   ├── ChartError                a chart cannot be had, or is not what was asked for
│   ├── ReleaseRecordError        a release's Secret cannot be read
│   ├── InstallBlockedError       a release that is not ours is in the way
│   │   ├── ForeignReleaseError   it has our labels, where none of ours is
│   │   └── ReleaseTakenError     it has the wanted name
│   ├── KubeconfigMissingError    (operator.kubeconfigs) Rancher's Secret is not there, or holds none
│   ├── NotConnectedError         (operator.kubeconfigs) Rancher is not connected to the guest
│   ├── TooManyAddressesError     (guest.carried) a guest names more addresses than are read
│   └── CarriedElsewhereError     another guest carries the address that would be written
└── in the modules that raise them: SettingsError and YamlRefusedError (one bad value of kube-fip-config),
    SpecError and ContendedError (one floating IP), MetricsPortError, SchemaError, RestoredStoreError and
    LeaderWorkStuckError (the process)
"""

from __future__ import annotations

from fipop.errors.api import (
    PASSING_ERRORS,
    ApiAlreadyExistsError,
    ApiAnswerError,
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiGoneError,
    ApiInvalidError,
    ApiNotFoundError,
    ApiServerError,
    ApiThrottledError,
    ApiUnauthorizedError,
    ApiUnreachableError,
    NamespaceTerminatingError,
)
from fipop.errors.base import (
    FipopError,
)
from fipop.errors.guests import (
    CarriedElsewhereError,
    ChartError,
    ForeignReleaseError,
    GuestError,
    GuestUnreadableError,
    HelmError,
    HelmFailure,
    InstallBlockedError,
    KubeconfigError,
    PassTimeoutError,
    ReleaseRecordError,
    ReleaseTakenError,
)
from fipop.errors.ipam import (
    AddressOutOfRangeError,
    AddressSpaceChangedError,
    AddressSyntaxError,
    FamilyMissingError,
    IpamError,
    PoolExhaustedError,
    PoolFamilyMissingError,
    PoolSyntaxError,
    PoolTooLargeError,
    RangeDrainingError,
    RangeFullError,
    RangeUnknownError,
)
from fipop.errors.process import (
    AuthorityReplacedError,
    KubeAccessError,
    NotLeadingError,
    StartError,
    WatcherEndedError,
)

__all__ = [
    "PASSING_ERRORS",
    "AddressOutOfRangeError",
    "AddressSpaceChangedError",
    "AddressSyntaxError",
    "ApiAlreadyExistsError",
    "ApiAnswerError",
    "ApiConflictError",
    "ApiError",
    "ApiForbiddenError",
    "ApiGoneError",
    "ApiInvalidError",
    "ApiNotFoundError",
    "ApiServerError",
    "ApiThrottledError",
    "ApiUnauthorizedError",
    "ApiUnreachableError",
    "AuthorityReplacedError",
    "CarriedElsewhereError",
    "ChartError",
    "FamilyMissingError",
    "FipopError",
    "ForeignReleaseError",
    "GuestError",
    "GuestUnreadableError",
    "HelmError",
    "HelmFailure",
    "InstallBlockedError",
    "IpamError",
    "KubeAccessError",
    "KubeconfigError",
    "NamespaceTerminatingError",
    "NotLeadingError",
    "PassTimeoutError",
    "PoolExhaustedError",
    "PoolFamilyMissingError",
    "PoolSyntaxError",
    "PoolTooLargeError",
    "RangeDrainingError",
    "RangeFullError",
    "RangeUnknownError",
    "ReleaseRecordError",
    "ReleaseTakenError",
    "StartError",
    "WatcherEndedError",
]
