"""What becomes of a Service by the cloud provider: one row for each row of the table of its contract (section 2)."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.golden.normal import Json, to_yaml
from tests.golden.provider_stories import FINALIZER, leave_behind, patch
from tests.golden.story import Story
from tests.harness.small_provider import add, change

SERVICES = "services"
BOTH = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9", "interface-global": "eth1"}
ONE = {"cidr-global": "10.0.0.1-10.0.0.1"}
SHARED = {"cidr-global": "10.0.0.1-10.0.0.1", "allow-share-shop": "true"}
DUAL = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
CLASS = "kube-vip.io/kube-vip-class"

Prepare = Callable[[Story], None]


class Row:
    """One row: what is there and served first (`given`), and then what happens (`then`)."""

    def __init__(
        self,
        title: str,
        then: Prepare,
        *,
        given: Prepare | None = None,
        data: dict[str, str] | None = None,
        class_name: str | None = None,
    ) -> None:
        self.title, self.given, self.then = title, given, then
        self.data, self.class_name = dict(data or BOTH), class_name

    async def run(self) -> Json:
        """Have it happen; return what was there and what is there in the end."""
        story = Story()
        provider = story.provider(data=self.data, class_name=self.class_name)
        story.step("given")
        if self.given is not None:
            self.given(story)
            await story.serve(provider)
        story.step("then")
        self.then(story)
        before = story.objects(SERVICES)
        await story.serve(provider)
        after = story.objects(SERVICES)
        events = story.take_step().get("events")
        found: Json = {"given": before, "becomes": after if after != before else "the same"}
        return {**found, "events": events} if events else found


def _web(**spec: Any) -> Prepare:
    return lambda story: add(story.memory, "web", **spec)


def _annotated(addresses: str, **spec: Any) -> Prepare:
    def make(story: Story) -> None:
        add(story.memory, "web", **spec)
        change(story.memory, "web", a=addresses)

    return make


def _patch(metadata: Json | None = None, **spec: Any) -> Prepare:
    return lambda story: patch(story, "web", metadata=metadata, **spec)


def _legacy(story: Story) -> None:
    add(story.memory, "web", loadBalancerIP="10.0.0.5")
    patch(story, "web", metadata={"labels": {"ipam-address": "10.0.0.5", "app": "web"}})


def _overwritten(story: Story) -> None:
    change(story.memory, "web", a="10.0.0.7")


def _annotation_removed(story: Story) -> None:
    patch(story, "web", metadata={"annotations": {}})


def _both_removed(story: Story) -> None:
    patch(story, "web", metadata={"annotations": {}}, loadBalancerIP=None)


def _two(story: Story) -> None:
    add(story.memory, "web")
    add(story.memory, "other", loadBalancerIP="10.0.0.5")


def _sharers(story: Story) -> None:
    add(story.memory, "web", ports=(80,))
    add(story.memory, "tls", ports=(443,))


def _clash(story: Story) -> None:
    patch(story, "tls", ports=[{"port": 80}])


def _interface_of_user(story: Story) -> None:
    add(story.memory, "web")
    patch(story, "web", metadata={"annotations": {"kube-vip.io/serviceInterface": "bond0"}})


def _deleted_by_class(story: Story) -> None:
    add(story.memory, "web", loadBalancerClass="example.org/other")
    patch(story, "web", metadata={"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:01:00Z"})


def _left_behind(story: Story) -> None:
    leave_behind(story, "web", "10.0.0.5")


ROWS = (
    Row("neither A nor L", _web()),
    Row("neither A nor L, required dual stack, IPv6 first", _web(**{**DUAL, "ipFamilies": ["IPv6", "IPv4"]})),
    Row("neither A nor L, an interface of the user's", _interface_of_user),
    Row("L only", _web(loadBalancerIP="10.0.0.5")),
    Row("L only, with the label of the oldest form", _legacy),
    Row("A only", _annotated("10.0.0.5")),
    Row("A only, one part is a host name", _annotated("10.0.0.5,lb.example.org")),
    Row("A and L, not ours", _annotated("10.0.0.5", loadBalancerIP="10.0.0.5")),
    Row("chosen by kube-vip-cloud-provider", _left_behind),
    Row("chosen, and L changed", _patch(loadBalancerIP="10.0.0.7"), given=_web()),
    Row("chosen dual stack, and L changed", _patch(loadBalancerIP="10.0.0.7"), given=_web(**DUAL)),
    Row("chosen, A changed while L is still our entry", _overwritten, given=_web()),
    Row("chosen, A removed, L stays", _annotation_removed, given=_web()),
    Row("A and L both removed", _both_removed, given=_web()),
    Row("chosen, policy became dual", _patch(**DUAL), given=_web()),
    Row(
        "chosen, policy became single",
        _patch(ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"]),
        given=_web(**DUAL),
    ),
    Row("chosen, L emptied", _patch(loadBalancerIP=""), given=_web()),
    Row("chosen, L names another's address", _patch(loadBalancerIP="10.0.0.5"), given=_two),
    Row("sharers whose ports clash later", _clash, given=_sharers, data=SHARED),
    Row("chosen, type left LoadBalancer", _patch(type="ClusterIP"), given=_web()),
    Row("static, type left LoadBalancer", _patch(type="ClusterIP"), given=_web(loadBalancerIP="10.0.0.5")),
    Row("being deleted", _patch({"deletionTimestamp": "2026-01-01T00:01:00Z"}), given=_web()),
    Row("being deleted, another class by now", _deleted_by_class),
    Row("no pool", _web(), data={"search-order": "asc"}),
    Row(
        "full",
        lambda story: add(story.memory, "web"),
        given=lambda story: add(story.memory, "first"),
        data=ONE,
    ),
    Row("family missing", _web(**DUAL), data=ONE),
    Row("another class", _web(loadBalancerClass="example.org/other")),
    Row("no class, where one is served", _web(), class_name=CLASS),
    Row("the class that is served", _web(loadBalancerClass=CLASS), class_name=CLASS),
    Row("no LoadBalancer", _web(type="ClusterIP")),
)


def make_service_rows() -> dict[str, str]:
    """Return the rows."""
    return {"services.yaml": to_yaml({row.title: asyncio.run(row.run()) for row in ROWS})}
