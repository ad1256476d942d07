"""What the cloud provider does: one story for each rule, told by the methods of the in-memory provider."""

from typing import Any

from tests.golden.story import Story
from tests.harness.memory import copy_json
from tests.harness.small_provider import add, change

SERVICES = "services"
ADDRESSES = "kube-vip.io/loadbalancerIPs"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
POOL = {"cidr-global": "10.0.0.1-10.0.0.4"}


def patch(
    story: Story,
    name: str,
    namespace: str = "shop",
    *,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> None:
    """Change any part of a Service as a user or another program does; None removes a field of the spec."""
    key = (SERVICES, namespace, name)
    found = copy_json(story.memory.objects[key])
    found["metadata"] |= metadata or {}
    found["spec"] = {k: v for k, v in {**found["spec"], **spec}.items() if v is not None}
    if status is not None:
        found["status"] = status
    story.memory.put(key, found)


def leave(story: Story, name: str, namespace: str = "shop") -> None:
    """Have a Service be gone, as after its last finalizer."""
    story.memory.remove((SERVICES, namespace, name), by_people=True)


def announce(story: Story, name: str, address: str) -> None:
    """Have kube-vip put an address into the status of a Service."""
    patch(story, name, status={"loadBalancer": {"ingress": [{"ip": address}]}})


async def assigned_from_keys(story: Story) -> None:
    """The pool of a namespace is the first of cidr-<ns>, range-<ns>, cidr-global and range-global that is there."""
    story.step("namespaces with a CIDR, with a range, and with neither")
    keys = {
        "cidr-shop": "10.1.0.0/29",
        "range-shop": "10.9.0.1-10.9.0.9",
        "range-lab": "10.2.0.5-10.2.0.9",
        "cidr-global": "10.3.0.8/30",
        "range-global": "10.9.1.1-10.9.1.9",
        "interface-lab": "eth1",
        "interface-global": "eth0",
    }
    provider = story.provider(data=keys)
    for namespace in ("shop", "lab", "bank"):
        add(story.memory, "web", namespace=namespace)
    await story.serve(provider)


async def highest_first(story: Story) -> None:
    """The order, the excluded addresses and the end addresses are the ConfigMap's."""
    story.step("highest first, one address excluded, the ends of the prefix skipped")
    keys = {
        "cidr-global": "10.0.0.0/29",
        "search-order": "desc",
        "exclude-global": "10.0.0.6",
        "skip-end-ips-in-cidr": "true",
    }
    provider = story.provider(data=keys)
    add(story.memory, "one")
    add(story.memory, "two")
    await story.serve(provider)


async def static_address(story: Story) -> None:
    """A user's own address is taken over, also outside of the pool; one that is taken is reported, not refused."""
    story.step("L of the pool, L outside of it, A alone, and a second one with the same A")
    provider = story.provider(data=dict(POOL))
    add(story.memory, "inside", loadBalancerIP="10.0.0.3")
    add(story.memory, "outside", loadBalancerIP="192.0.2.1")
    add(story.memory, "annotated")
    change(story.memory, "annotated", a="10.0.0.2")
    await story.serve(provider)
    add(story.memory, "twice")
    change(story.memory, "twice", a="10.0.0.2")
    await story.serve(provider)
    story.step("one without a wish gets what is left")
    add(story.memory, "new")
    await story.serve(provider)


async def shared_by_ports(story: Story) -> None:
    """Services share an address when their namespaces' key says so and their ports are disjoint."""
    story.step("three Services of a namespace that shares: two with disjoint ports, one with a clash")
    provider = story.provider(data={"cidr-shop": "10.0.0.1-10.0.0.2", "allow-share-shop": "true"})
    for name, port in (("http", 80), ("https", 443), ("http-too", 80)):
        add(story.memory, name, ports=(port,))
    await story.serve(provider)
    story.step("no address is left for another clash")
    add(story.memory, "http-three", ports=(80,))
    await story.serve(provider)
    story.step("a sharer changes its ports so that they clash")
    patch(story, "https", ports=[{"port": 80}])
    await story.serve(provider)


async def shared_by_consent(story: Story) -> None:
    """Every user of an address must consent by its own namespace's key."""
    story.step("a global pool, and two namespaces of which one shares")
    keys = {"cidr-global": "10.0.0.1-10.0.0.2", "allow-share-shop": "true"}
    provider = story.provider(data=keys)
    add(story.memory, "one", ports=(80,))
    add(story.memory, "two", ports=(443,))
    add(story.memory, "other", namespace="lab", ports=(8080,))
    await story.serve(provider)
    story.step("the consent of shop is withdrawn")
    provider.data["allow-share-shop"] = "false"
    await story.serve(provider)
    add(story.memory, "three", ports=(8443,))
    await story.serve(provider)


async def both_families(story: Story) -> None:
    """Family policies: what can be had, both or nothing, and the order in the annotation."""
    story.step("single, preferred and required, and the order of families")
    keys = {"cidr-global": "10.0.0.1-10.0.0.9,2001:db8::1-2001:db8::9", "cidr-four": "10.4.0.1-10.4.0.9"}
    provider = story.provider(data=keys)
    add(story.memory, "single")
    add(story.memory, "six", ipFamilyPolicy="SingleStack", ipFamilies=["IPv6"])
    add(story.memory, "prefers", ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv6", "IPv4"])
    add(story.memory, "requires", ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"])
    add(story.memory, "prefers", namespace="four", ipFamilyPolicy="PreferDualStack")
    add(story.memory, "requires", namespace="four", ipFamilyPolicy="RequireDualStack")
    await story.serve(provider)
    story.step("single becomes dual, and the one that prefers both becomes single")
    patch(story, "single", ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"])
    patch(story, "prefers", ipFamilyPolicy="SingleStack", ipFamilies=["IPv6"])
    await story.serve(provider)


async def full_pool(story: Story) -> None:
    """A Service waits while its pool is full, and is served when an address is free."""
    story.step("a pool of one address, and two Services")
    provider = story.provider(data={"range-global": "10.0.0.1-10.0.0.1"})
    add(story.memory, "first")
    story.memory.pass_time(1)
    add(story.memory, "second")
    await story.serve(provider)
    story.step("the first one is deleted")
    leave(story, "first")
    await story.serve(provider)
    await provider.prune()
    await story.serve(provider)


async def deleted_service(story: Story) -> None:
    """The finalizer of a Service that is being deleted is removed, and its address is free when it is gone."""
    story.step("a Service with an address")
    provider = story.provider(data=dict(POOL))
    add(story.memory, "web")
    await story.serve(provider)
    story.step("it is being deleted")
    patch(story, "web", metadata={"deletionTimestamp": "2026-01-01T00:01:00Z"})
    await story.serve(provider)
    story.step("it is gone, with its last finalizer")
    await story.serve(provider)
    await provider.prune()
    story.step("another one gets the address")
    add(story.memory, "next")
    await story.serve(provider)


async def changed_type(story: Story) -> None:
    """A Service that is no LoadBalancer any more loses what was assigned; a user's own address stays."""
    story.step("one with an assigned address, one with a user's own")
    provider = story.provider(data=dict(POOL))
    add(story.memory, "chosen")
    add(story.memory, "static", loadBalancerIP="10.0.0.4")
    await story.serve(provider)
    story.step("both become ClusterIP")
    for name in ("chosen", "static"):
        patch(story, name, type="ClusterIP")
    await story.serve(provider)
    await provider.prune()
    story.step("both become LoadBalancer again")
    for name in ("chosen", "static"):
        patch(story, name, type="LoadBalancer")
    await story.serve(provider)


async def other_class(story: Story) -> None:
    """A Service of another class is left alone, and its address counts as in use."""
    story.step(
        "one of another class with an address in its status, one of none, one of the class that is served"
    )
    add(story.memory, "theirs", loadBalancerClass="example.org/other")
    announce(story, "theirs", "10.0.0.1")
    add(story.memory, "none")
    add(story.memory, "ours", loadBalancerClass="kube-vip.io/kube-vip-class")
    provider = story.provider(data=dict(POOL))
    await story.serve(provider)
    story.step("a provider for the class starts")
    classed = story.provider(data=dict(POOL), class_name="kube-vip.io/kube-vip-class")
    await story.serve(classed)


async def changed_keys(story: Story) -> None:
    """A change of the ConfigMap moves no holder, and serves those that wait."""
    story.step("no key at all")
    provider = story.provider(data={})
    add(story.memory, "web")
    await story.serve(provider)
    story.step("a key that cannot be read")
    provider.data["cidr-global"] = "10.0.0.0/99"
    await story.serve(provider)
    story.step("a pool")
    provider.data["cidr-global"] = "10.0.0.1-10.0.0.4"
    await story.serve(provider)
    story.step("another pool; a second Service")
    provider.data["cidr-global"] = "10.7.0.1-10.7.0.4"
    add(story.memory, "later")
    await story.serve(provider)
    story.step("DHCP; a third one")
    provider.data["cidr-global"] = "0.0.0.0/32"
    add(story.memory, "dhcp")
    await story.serve(provider)


def leave_behind(story: Story, name: str, address: str, **spec: Any) -> None:
    """Have a Service as kube-vip-cloud-provider left it: address, annotation and label."""
    add(story.memory, name, loadBalancerIP=address, **spec)
    patch(
        story,
        name,
        metadata={
            "annotations": {ADDRESSES: address},
            "labels": {"implementation": "kube-vip"},
            "finalizers": [FINALIZER],
        },
        status={"loadBalancer": {"ingress": [{"ip": address}]}},
    )


async def adopted(story: Story) -> None:
    """What kube-vip-cloud-provider assigned is taken over, and no Service of it is written."""
    story.step("two of its Services, and the oldest form, with L alone")
    leave_behind(story, "web", "10.0.0.1")
    leave_behind(story, "outside", "192.0.2.7")
    add(story.memory, "legacy", loadBalancerIP="10.0.0.2")
    patch(story, "legacy", metadata={"labels": {"ipam-address": "10.0.0.2"}})
    provider = story.provider(data=dict(POOL))
    await story.serve(provider)
    story.step("a new one")
    add(story.memory, "new")
    await story.serve(provider)
    story.step("a restart")
    await story.serve(story.provider(data=dict(POOL)))


STORIES = (
    assigned_from_keys,
    highest_first,
    static_address,
    shared_by_ports,
    shared_by_consent,
    both_families,
    full_pool,
    deleted_service,
    changed_type,
    other_class,
    changed_keys,
    adopted,
)
