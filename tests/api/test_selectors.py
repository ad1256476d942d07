"""Selectors of overrides select what the API server selects."""

import asyncio
import os
import random

import pytest

from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.server import HttpServer
from fipop.settings.overrides import Requirement, Selector
from localfleet.controlplane import ControlPlane

pytestmark = pytest.mark.xdist_group("management")

OBJECTS = int(os.environ.get("FIPOP_SELECTOR_OBJECTS", "100"))
SELECTORS = 60
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
KEYS = ("rack", "example.com/tier", "Zone_1", "a.b-c")
VALUES = ("", "a", "b", "A", "1.2_3", "x" * 63)


def build_labels(chance: random.Random) -> dict[str, str]:
    return {key: chance.choice(VALUES) for key in KEYS if chance.random() < 0.5}


def build_selector(chance: random.Random) -> Selector:
    requirements = []
    for _ in range(chance.randrange(3)):
        operator = chance.choice(OPERATORS)
        count = chance.randrange(1, 4) if operator in OPERATORS[:2] else 0
        values = tuple(chance.sample(VALUES, count))
        requirements.append(Requirement(key=chance.choice(KEYS), operator=operator, values=values))
    labels = build_labels(chance) if chance.random() < 0.3 else {}
    return Selector(match_labels=labels, match_expressions=tuple(requirements))


def render(selector: Selector) -> str:
    """Return a selector as the API server takes it in a query."""
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    for each in selector.match_expressions:
        values = ",".join(each.values)
        match each.operator:
            case "In":
                parts.append(f"{each.key} in ({values})")
            case "NotIn":
                parts.append(f"{each.key} notin ({values})")
            case "Exists":
                parts.append(each.key)
            case "DoesNotExist":
                parts.append(f"!{each.key}")
    return ",".join(parts)


async def test_a_selector_selects_what_the_api_server_selects(
    management: ControlPlane, namespace: str
) -> None:
    chance = random.Random(1)
    objects = {f"object-{number}": build_labels(chance) for number in range(OBJECTS)}
    slots = asyncio.Semaphore(16)
    async with KubeClient(HttpServer(await configure_from_kubeconfig(management.admin_kubeconfig))) as client:

        async def create(name: str, labels: dict[str, str]) -> None:
            async with slots:
                await client.create(
                    CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace, "labels": labels}}
                )

        await asyncio.gather(*(create(*each) for each in objects.items()))
        sizes = []
        for selector in (build_selector(chance) for _ in range(SELECTORS)):
            listing = await client.list(
                CONFIG_MAPS, namespace=namespace, label_selector=render(selector), metadata_only=True
            )
            selected = {each["metadata"]["name"] for each in listing.items} & objects.keys()
            expected = {name for name, labels in objects.items() if selector.matches(labels)}
            assert selected == expected, selector
            sizes.append(len(selected))
    assert len(set(sizes)) > SELECTORS / 6
