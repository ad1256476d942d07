"""keepalived's place: one plan for all Services, one write of its ConfigMap, then their statuses."""

from random import Random
from typing import Any, cast

from fipop.cloudprovider.keepalived import Method, parse_network
from fipop.cloudprovider.keepalived_mode import KeepalivedMode
from fipop.cloudprovider.options import KeepalivedOptions
from fipop.cloudprovider.service_cache import ServiceCache
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from fipop.metrics.services import ServiceMetrics, ServiceSnapshot
from tests.harness.background import running, until
from tests.harness.memory import Memory
from tests.unit.cloudprovider.ledgers import Prompt

OPTIONS = KeepalivedOptions(
    namespace="kube-system",
    config_map="vip-configmap",
    network=parse_network("10.210.38.64/30"),
    default_method=Method.NAT,
)
KEY = (CONFIG_MAPS.plural, "kube-system", "vip-configmap")


class Guest:
    """A guest whose Services are known to the mode as they are."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.client = cast("Any", Prompt(self.memory))
        self.services = ServiceCache(self.client)
        self.services._loaded.set()
        self.memory.listeners.append(self._hear)
        self.events: list[tuple[str, str]] = []
        self.mode = KeepalivedMode(
            OPTIONS,
            client=self.client,
            services=self.services,
            events=cast("Any", self),
            metrics=ServiceMetrics(lambda: ServiceSnapshot(leading=True), version="0"),
            random=Random(1),
        )

    def add(self, name: str, **spec: Any) -> None:
        body = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
        metadata = {"namespace": "shop", "name": name}
        self.memory.put((SERVICES.plural, "shop", name), {"metadata": metadata, "spec": body, "status": {}})

    def remove(self, name: str) -> None:
        self.memory.remove((SERVICES.plural, "shop", name))

    def address(self, name: str) -> str:
        status = self.memory.objects[SERVICES.plural, "shop", name]["status"]
        return ",".join(each["ip"] for each in (status.get("loadBalancer") or {}).get("ingress", ()))

    async def work(self, is_reached: Any) -> None:
        async with running(self.mode.work(self.client)):
            await until(is_reached, "the Services to be served")

    def record(self, about: Any, _kind: str, reason: str, _message: str) -> None:
        self.events.append((about.name, reason))

    def _hear(self, change: Any) -> None:
        if change.plural == SERVICES.plural:
            if change.obj is not None:
                self.services.take(change.obj)
            else:
                found = self.services.store.get(change.namespace, change.name)
                assert found is not None
                self.services._tell(
                    self.services.store.delete(
                        {
                            "metadata": {
                                "namespace": change.namespace,
                                "name": change.name,
                                "uid": found.uid,
                                "resourceVersion": str(change.revision),
                            }
                        }
                    )
                )


async def test_the_config_map_is_made_and_says_whose_the_addresses_are_before_a_status_does() -> None:
    guest = Guest()
    guest.add("web")
    order: list[str] = []
    guest.memory.listeners.append(lambda change: order.append(change.plural))
    await guest.work(lambda: guest.address("web"))
    assert guest.address("web") in guest.memory.objects[KEY]["data"]
    assert guest.memory.objects[KEY]["data"][guest.address("web")] == "shop/web"
    assert order[-1] == SERVICES.plural
    assert CONFIG_MAPS.plural in order[:-1]


async def test_who_finds_no_address_waits_is_told_once_and_is_served_when_one_goes() -> None:
    guest = Guest()
    for number in range(8):
        guest.add(f"web-{number}")
        guest.memory.pass_time(1)
    await guest.work(lambda: guest.events)
    waiting = [name for name, _ in guest.events]
    assert waiting
    assert all(not guest.address(name) for name in waiting)
    assert len(waiting) == len(set(waiting)), "each is told once"

    served = next(name for name in (f"web-{n}" for n in range(8)) if guest.address(name))
    guest.remove(served)
    before = set(waiting)
    await guest.work(lambda: any(guest.address(name) for name in before))


async def test_a_service_of_a_class_is_somebody_elses() -> None:
    guest = Guest()
    guest.add("theirs", loadBalancerClass="example.com/other")
    guest.add("web")
    await guest.work(lambda: guest.address("web"))
    assert guest.address("theirs") == ""


def test_who_does_not_work_has_nothing_to_show() -> None:
    assert Guest().mode.snapshot() is None
