"""The access that a source of charts asks for, read where the options say; what is missing is told with its grant."""

import base64
from typing import Any

import pytest

from fipop.errors import ForbiddenError, UnavailableError
from fipop.guest.helm.chart_access import ChartAccess, ChartAccessError, ChartAccessReader
from fipop.guest.helm.charts import ChartSource
from tests.harness.answering_client import AnsweringClient

PEM = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
OPEN = ChartSource(name="kube-vip")
CLOSED = ChartSource(name="kube-vip", secret="charts", secret_host="charts.example", ca="authority")


def reader(**objects: object) -> ChartAccessReader:
    async def get(_resource: object, name: str, *, namespace: str) -> object:
        assert namespace == "kube-fip"
        found = objects.get(name)
        if isinstance(found, Exception):
            raise found
        return found

    return ChartAccessReader(client=AnsweringClient(get=get), namespace="kube-fip")


def secret(**fields: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in fields.items()}}


async def test_an_open_source_is_asked_without_a_read() -> None:
    assert await reader(charts=AssertionError("nothing is to be read")).read(OPEN) == ChartAccess()


async def test_credential_and_authority_are_those_that_the_options_name() -> None:
    found = await reader(charts=secret(username="u", password="p"), authority={"data": {"ca.crt": PEM}}).read(
        CLOSED
    )
    assert found == ChartAccess(
        username="u", password="p", authority=PEM, hosts=frozenset({"charts.example"})
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "Secret kube-fip/charts does not exist"),
        (ForbiddenError("get Secret", status=403), "settings.kubevipChartSecret"),
        (UnavailableError("get Secret charts", status=500), "get Secret charts: 500"),
        (secret(username="u"), "must hold username and password, or token"),
    ],
)
async def test_what_is_missing_is_one_sentence(found: object, words: str) -> None:
    with pytest.raises(ChartAccessError, match=words):
        await reader(charts=found).read(CLOSED)


async def test_so_is_an_authority_that_is_none() -> None:
    objects = {"charts": secret(token="t"), "authority": {"data": {"ca.crt": "no certificate"}}}
    with pytest.raises(ChartAccessError, match="must hold certificates in PEM"):
        await reader(**objects).read(CLOSED)
