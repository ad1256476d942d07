"""What hostile people in a guest do with Services and ConfigMaps. One entry, one malice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localfleet.client import ApiClient, Json
from localfleet.errors import ApiError
from localfleet.waiting import eventually
from tests.api.services.shop import CONDITION, DUAL, FINALIZER, KEYS, PREFER, A, build_service

AT_ONCE = 8
GOOD_NAMESPACES = 10
HIDDEN = "\x1b[31m\u202ePWNED\x07"
NOTE = "kubefip.k8s.binbash.org/assigned"
FOREIGN_FINALIZER = "hostile.example/never"
OTHER_CLASS = "hostile.example/another"
SETTLES_SECONDS = 60.0


def neighbour(number: int) -> str:
    """Return an address of a well-behaved namespace's pool; the first 200 have Services."""
    row, column = divmod(number // GOOD_NAMESPACES, 200)
    return f"10.{50 + number % GOOD_NAMESPACES}.{row}.{column + 1}"


@dataclass(slots=True, kw_only=True)
class Scene:
    """A namespace in which one kind is at work, with a pool of its own: `net`.0/24, and of IPv6 `net6`0-ff."""

    client: ApiClient
    namespace: str
    number: int
    at_once: int = AT_ONCE
    """So many requests side by side."""
    places: list[tuple[str, str]] = field(default_factory=list)
    """The keys that were set in ConfigMaps, by the path of each."""

    @property
    def net(self) -> str:
        return f"10.{100 + self.number % 100}.{self.number // 100}"

    @property
    def net6(self) -> str:
        return f"2001:db8:{self.number + 1:x}::"

    def path(self, name: str = "web-0", *, namespace: str = "") -> str:
        return f"/api/v1/namespaces/{namespace or self.namespace}/services/{name}"

    async def make(self, body: Json, *, namespace: str = "") -> None:
        await self.client.create(self.path("", namespace=namespace).rstrip("/"), body)

    async def change(self, patch: Json, name: str = "web-0") -> None:
        await self.client.patch(self.path(name), patch)

    async def tell(self, status: Json, name: str = "web-0") -> None:
        """Write the status, as kube-vip does."""
        await self.client.patch(f"{self.path(name)}/status", {"status": status})

    async def remove(self, name: str = "web-0") -> None:
        await self.client.delete(self.path(name))

    async def set(self, place: str, data: Mapping[str, str | None]) -> None:
        """Set keys of a ConfigMap; they go at the end."""
        self.places += [(place, key) for key in data]
        await self.client.patch(place, {"data": data})

    async def open(self) -> None:
        """Make the namespace and its pool."""
        await self.client.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        pool = f"{self.net}.0/24,{self.net6}-{self.net6}ff"
        await self.set(KEYS, {f"cidr-{self.namespace}": pool})

    async def clear(self) -> None:
        """Take away all that the kind left."""
        gone = {key: None for _, key in self.places}
        if gone and await self.client.find(KEYS) is not None:
            await self.client.patch(KEYS, {"data": gone})
        for namespace in await self.client.items("/api/v1/namespaces"):
            name = namespace["metadata"]["name"]
            if name == self.namespace or name.startswith(f"{self.namespace}-"):
                await eventually(lambda name=name: self._is_empty(name), seconds=SETTLES_SECONDS)  # type: ignore[misc]
                await self.client.delete(f"/api/v1/namespaces/{name}")

    async def _is_empty(self, namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/services"
        left = await self.client.items(path)
        for each in left:
            if FOREIGN_FINALIZER in each["metadata"].get("finalizers", ()):
                place = self.path(each["metadata"]["name"], namespace=namespace)
                await self.client.patch(place, {"metadata": {"finalizers": None}})
        if any("deletionTimestamp" not in each["metadata"] for each in left):
            await self.client.delete(path)
        return not left


Act = Callable[[Scene], Awaitable[object]]
Body = Callable[[Scene, int], Json]
Step = Callable[[Scene, int], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind. `is_alone`: it changes what all share, so no other kind is at work meanwhile."""

    name: str
    act: Act
    is_alone: bool = False


def service(number: int = 0, **options: Any) -> Json:
    """Return a Service that takes no node ports, of which a cluster has few."""
    return build_service(f"web-{number}", **{"allocateLoadBalancerNodePorts": False, **options})


def with_ports(number: int, first: int, count: int) -> Json:
    return service(number, ports=tuple(range(first, first + count)))


def with_meta(number: int, **fields: Any) -> Json:
    body = service(number)
    body["metadata"] |= fields
    return body


def for_each(count: int, step: Step) -> Act:
    """Do the step for each of so many, some at once."""

    async def act(scene: Scene) -> None:
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                await step(scene, number)

        await asyncio.gather(*(work() for _ in range(scene.at_once)))

    return act


def made(count: int, build: Body) -> Act:
    """Create so many Services."""
    return for_each(count, lambda scene, number: scene.make(build(scene, number)))


def annotated(count: int, text: Callable[[Scene, int], str]) -> Act:
    """Create so many Services with this annotation of addresses."""
    return made(count, lambda scene, number: service(number, annotations={A: text(scene, number)}))


def again(count: int, *steps: Step) -> Act:
    """Do the steps in turn, again and again. What is not there any more, or has changed, is passed over."""

    async def act(scene: Scene) -> None:
        for number in range(count):
            try:
                await steps[number % len(steps)](scene, number)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise

    return act


def then(*acts: Act) -> Act:
    async def act(scene: Scene) -> None:
        for each in acts:
            await each(scene)

    return act


def keys(build: Callable[[Scene], Mapping[str, str]], count: int = 20) -> Act:
    """Set keys of the kubevip ConfigMap, beside Services of that namespace."""

    async def act(scene: Scene) -> None:
        await made(count, lambda _, number: service(number))(scene)
        await scene.set(KEYS, build(scene))

    return act


def pool(text: str) -> Act:
    """Have this text as the pool of the namespace."""
    return keys(lambda scene: {f"cidr-{scene.namespace}": text})


def requesting(address: str) -> Json:
    return {"spec": {"loadBalancerIP": address}}


def annotating(text: str | None, key: str = A) -> Json:
    return {"metadata": {"annotations": {key: text}}}


def ours(status: str, message: str) -> Json:
    """Return our condition as somebody else writes it."""
    now = "2026-01-01T00:00:00Z"
    said = {"type": CONDITION, "status": status, "reason": "Assigned", "message": message}
    return {"conditions": [said | {"lastTransitionTime": now}]}


async def manage(scene: Scene, number: int) -> None:
    """Own thousands of annotations, as many field managers each."""
    notes = {f"hostile.example/k{key}": "x" for key in range(3000)}
    for manager in range(3):
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"annotations": notes}}
        place = scene.path(f"web-{number}")
        await scene.client.patch(place, body, kind="apply", field_manager=f"m{manager}")


async def fill_namespaces(scene: Scene, number: int) -> None:
    """Make a namespace and Services in it."""
    name = f"{scene.namespace}-{number}"
    await scene.client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    for each in range(3):
        await scene.make(service(each), namespace=name)


async def replace_keys(scene: Scene, _number: int) -> None:
    """Delete the kubevip ConfigMap, and put its keys back."""
    data = (await scene.client.get(KEYS))["data"]
    await scene.client.delete(KEYS)
    place, _, name = KEYS.rpartition("/")
    try:
        await scene.client.create(place, {"metadata": {"name": name}, "data": data})
    except ApiError:  # the provider came first
        await scene.client.patch(KEYS, {"data": data})


def switched(name: str, first: Json, second: Json) -> Kind:
    """Have a Service change to and fro."""
    return Kind(
        name=name,
        act=then(
            made(5, lambda _, number: service(number)),
            again(
                100,
                lambda scene, number: scene.change(first, f"web-{number % 5}"),
                lambda scene, number: scene.change(second, f"web-{number % 5}"),
            ),
        ),
    )


LONG = 200_000
"""So many bytes of annotations are allowed, and some more."""
PARTS = 10_000
NAME_PARTS = ",".join(f"host-{number}.hostile.example" for number in range(5_000))

ANNOTATIONS = {
    "addresses-by-the-thousand": annotated(
        20, lambda *_: ",".join(f"172.20.{n // 250}.{n % 250 + 1}" for n in range(PARTS))
    ),
    "commas-alone": annotated(20, lambda *_: "," * LONG),
    "digits-without-end": annotated(20, lambda *_: "9" * LONG),
    "control-characters": annotated(20, lambda *_: f"{HIDDEN},\u2028,\u0000,\ud83d\ude00"),
    "host-names": annotated(20, lambda *_: NAME_PARTS),
    "addresses-of-nobody": annotated(20, lambda *_: "0.0.0.0,255.255.255.255,224.0.0.1,127.0.0.1,ff02::1"),
    "addresses-of-other-pools": annotated(
        60, lambda _, number: ",".join(neighbour(number * 16 + each) for each in range(16))
    ),
    "one-address-for-all": annotated(300, lambda scene, _: f"{scene.net}.7"),
    "sixteen-addresses-for-all": annotated(
        60, lambda scene, _: ",".join(f"{scene.net}.{each}" for each in range(1, 17))
    ),
    "addresses-of-others-in-turn": then(
        made(5, lambda _, number: service(number)),
        again(100, lambda scene, number: scene.change(annotating(neighbour(number)), f"web-{number % 5}")),
    ),
    "annotation-taken-away": then(
        made(5, lambda _, number: service(number)),
        again(100, lambda scene, number: scene.change(annotating(None), f"web-{number % 5}")),
    ),
    "notes-of-200-kB": made(
        40, lambda _, number: service(number, annotations={"hostile.example/a": "x" * LONG})
    ),
    "notes-that-change": then(
        made(5, lambda _, number: service(number)),
        again(
            60,
            lambda scene, number: scene.change(
                annotating(str(number % 10) * LONG, "hostile.example/a"), f"web-{number % 5}"
            ),
        ),
    ),
    "interface-of-200-kB": made(
        20,
        lambda _, number: service(number, annotations={"kube-vip.io/serviceInterface": HIDDEN + "x" * LONG}),
    ),
    "forged-note": made(
        60,
        lambda _, number: service(
            number,
            annotations={A: neighbour(number), NOTE: neighbour(number)},
            labels={"implementation": "kube-vip"},
            loadBalancerIP=neighbour(number),
        ),
    ),
    "forged-mark": made(
        60,
        lambda _, number: service(
            number,
            annotations={A: neighbour(number)},
            labels={"implementation": "kube-vip"},
            loadBalancerIP=neighbour(number),
        ),
    ),
}

SPECS = {
    "request-that-moves": then(
        made(5, lambda _, number: service(number)),
        again(
            100,
            lambda scene, number: scene.change(requesting(f"{scene.net}.{number + 50}"), f"web-{number % 5}"),
        ),
    ),
    "ports-by-the-thousand": made(4, lambda _, number: with_ports(number, 1, 3000)),
    "ports-that-change": then(
        made(1, lambda _, number: with_ports(number, 1, 500)),
        again(
            20,
            lambda scene, number: scene.change(
                {"spec": {"ports": with_ports(0, number * 500 + 1, 500)["spec"]["ports"]}}
            ),
        ),
    ),
    "dual-stack-of-every-kind": made(
        90,
        lambda _, number: service(
            number,
            **({}, DUAL, PREFER)[number % 3],
            ipFamilies=(["IPv4"], ["IPv6"], ["IPv4"])[number // 3 % 3]
            if number % 3 == 0
            else (["IPv4", "IPv6"], ["IPv6", "IPv4"])[number // 3 % 2],
        ),
    ),
    "another-class-with-our-marks": made(
        60,
        lambda _, number: service(
            number,
            loadBalancerClass=OTHER_CLASS,
            loadBalancerIP=neighbour(number),  # without it, our finalizer is its own controller's
            annotations={A: neighbour(number)},
            labels={"implementation": "kube-vip"},
            finalizers=[FINALIZER],
        ),
    ),
    "no-load-balancers": made(
        100,
        lambda _, number: service(
            number, type="ClusterIP", annotations={A: neighbour(number)}, allocateLoadBalancerNodePorts=None
        ),
    ),
    "external-addresses-by-the-hundred": made(
        20,
        lambda _, number: service(
            number, externalIPs=[f"172.21.{n // 250}.{n % 250 + 1}" for n in range(1000)]
        ),
    ),
    "labels-by-the-thousand": made(
        20, lambda _, number: service(number, labels={f"hostile.example/k{n}": "x" * 60 for n in range(2000)})
    ),
}

METADATA = {
    "finalizers-by-the-thousand": then(
        made(
            20,
            lambda _, number: service(
                number, finalizers=[FOREIGN_FINALIZER, *(f"hostile.example/f{n}" for n in range(2000))]
            ),
        ),
        for_each(20, lambda scene, number: scene.remove(f"web-{number}")),
    ),
    "foreign-finalizers": then(
        made(60, lambda _, number: service(number, finalizers=[FOREIGN_FINALIZER])),
        for_each(60, lambda scene, number: scene.remove(f"web-{number}")),
    ),
    "our-finalizer-taken-away": then(
        made(5, lambda _, number: service(number)),
        again(
            100, lambda scene, number: scene.change({"metadata": {"finalizers": None}}, f"web-{number % 5}")
        ),
    ),
    "owners-by-the-thousand": made(
        20,
        lambda _, number: with_meta(
            number,
            ownerReferences=[
                {"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": f"u{n}"} for n in range(2000)
            ],
        ),
    ),
    "field-managers": then(made(5, lambda _, number: service(number)), for_each(5, manage)),
}

STATUSES = {
    "conditions-by-the-thousand": then(
        made(5, lambda _, number: service(number)),
        for_each(
            5,
            lambda scene, number: scene.tell(
                {
                    "conditions": [
                        ours("True", HIDDEN)["conditions"][0] | {"type": f"T{n}"} for n in range(2000)
                    ]
                },
                f"web-{number}",
            ),
        ),
    ),
    "our-condition-forged": then(
        made(40, lambda _, number: service(number)),
        for_each(40, lambda scene, number: scene.tell(ours("True", HIDDEN + "x" * 30_000), f"web-{number}")),
    ),
    "status-of-a-thousand-addresses": then(
        made(10, lambda _, number: service(number)),
        for_each(
            10,
            lambda scene, number: scene.tell(
                {"loadBalancer": {"ingress": [{"ip": f"172.22.{n // 250}.{n % 250}"} for n in range(2000)]}},
                f"web-{number}",
            ),
        ),
    ),
    "status-of-others-addresses": then(
        made(60, lambda _, number: service(number)),
        for_each(
            60,
            lambda scene, number: scene.tell(
                {"loadBalancer": {"ingress": [{"ip": neighbour(number)}, {"hostname": "a.hostile.example"}]}},
                f"web-{number}",
            ),
        ),
    ),
}

LIVES = {
    "a-thousand-at-once": made(1000, lambda _, number: service(number)),
    "created-and-deleted": for_each(
        200,
        lambda scene, number: again(
            2, lambda *_: scene.make(service(number)), lambda *_: scene.remove(f"web-{number}")
        )(scene),
    ),
    "thirty-namespaces": for_each(30, fill_namespaces),
    "namespaces-deleted-at-once": then(
        for_each(10, fill_namespaces),
        for_each(
            10, lambda scene, number: scene.client.delete(f"/api/v1/namespaces/{scene.namespace}-{number}")
        ),
    ),
}
FLAPPING = [
    switched(
        "type-to-and-fro",
        {"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None}},
        {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}},
    ),
    switched(
        "families-to-and-fro",
        {"spec": PREFER},
        {"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": None, "clusterIPs": None}},
    ),
    switched("ports-to-and-fro", {"spec": {"ports": [{"port": 81}]}}, {"spec": {"ports": [{"port": 82}]}}),
]


def share(count: int) -> Act:
    return made(count, lambda _, number: service(number, ports=(1000 + number,)))


POOLS = {
    "pool-of-ten-thousand-parts": keys(
        lambda scene: {
            f"cidr-{scene.namespace}": ",".join(
                f"172.{n % 16 + 16}.{n // 250}.{n % 250}/32" for n in range(PARTS)
            )
        }
    ),
    "pool-of-800-kB": pool("10.0.0.1," * 90_000),
    "large-pool-that-changes": then(
        made(50, lambda _, number: service(number)),
        again(
            40,
            lambda scene, number: scene.set(
                KEYS,
                {
                    f"cidr-{scene.namespace}": f"{scene.net}.{number},"
                    + ",".join(f"172.{n % 16 + 16}.{n // 250}.{n % 250}" for n in range(PARTS))
                },
            ),
        ),
    ),
    "flags-of-any-text": keys(
        lambda scene: {
            f"{flag}-{scene.namespace}": text
            for flag, text in (
                ("allow-share", HIDDEN),
                ("draining", "yes" * 1000),
                ("interface", "\n" * 1000),
            )
        }
    ),
    "pools-of-everything": keys(
        lambda scene: {
            f"cidr-{scene.namespace}": "0.0.0.0/0,::/0",
            "cidr-hostile-all": "0.0.0.0/0",
            "cidr-hostile-6": "::/0",
        }
    ),
    "pool-of-another-namespace": keys(lambda scene: {f"cidr-{scene.namespace}": "10.50.0.0/16"}, count=100),
    "bad-keys-by-the-thousand": keys(lambda _: {f"cidr-hostile-{n}": f"{HIDDEN}{n}" for n in range(5_000)}),
    "pools-by-the-thousand": keys(
        lambda _: {f"cidr-hostile-{n}": f"172.{n // 250 + 16}.{n % 250}.0/24" for n in range(2_000)}
    ),
    "namespaces-by-the-thousand": keys(
        lambda _: {
            f"namespaces-hostile-{n}": ",".join(f"ns-{each}" for each in range(2_000)) for n in range(20)
        }
    ),
    "exclusions-by-the-thousand": keys(
        lambda scene: {
            f"exclude-{scene.namespace}": ",".join(f"{scene.net}.{n % 250}/32" for n in range(PARTS))
        }
    ),
    "full-pool-freed-again-and-again": then(
        lambda scene: scene.set(KEYS, {f"cidr-{scene.namespace}": f"{scene.net}.1"}),
        made(150, lambda _, number: service(number)),
        again(30, lambda scene, number: scene.remove(f"web-{number // 2}")),
    ),
    "sharing-by-the-hundred": then(
        lambda scene: scene.set(KEYS, {f"allow-share-{scene.namespace}": "true"}), share(200)
    ),
    "sharing-to-and-fro": then(
        share(40),
        again(
            30,
            lambda scene, number: scene.set(
                KEYS, {f"allow-share-{scene.namespace}": str(number % 2 == 0).lower()}
            ),
        ),
    ),
    "keys-that-change": then(
        made(50, lambda _, number: service(number)),
        again(
            40,
            lambda scene, number: scene.set(
                KEYS,
                {
                    f"cidr-{scene.namespace}": ("0.0.0.0/32", f"{scene.net}.0/24", "", HIDDEN)[number % 4],
                    "search-order": ("desc", None)[number % 2],
                },
            ),
        ),
    ),
    "keys-deleted": again(5, replace_keys),
}


def _kinds(table: Mapping[str, Act], *, is_alone: bool = False) -> Sequence[Kind]:
    return [Kind(name=name, act=act, is_alone=is_alone) for name, act in table.items()]


KINDS: Sequence[Kind] = [
    *(kind for table in (ANNOTATIONS, SPECS, METADATA, STATUSES, LIVES) for kind in _kinds(table)),
    *FLAPPING,
    *_kinds(POOLS, is_alone=True),
]
