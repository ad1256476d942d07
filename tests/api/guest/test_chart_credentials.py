"""The password for a source of charts is seen by its own host alone, whatever redirects and realms say."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from fipop.guest.errors import ChartError
from fipop.guest.helm.chart_access import ChartAccessReader
from fipop.guest.helm.chart_cache import CachedChart, ChartCache
from fipop.guest.helm.charts import wanted_releases
from localfleet.assets import ensure
from localfleet.certificates import CertificateAuthority, build_authority, build_server_tls
from localfleet.chartrepo import ChartRepository
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.registry import CREDENTIAL, OciRegistry
from tests.api.guest.guest_bench import settings_with
from tests.harness.answering_client import AnsweringClient
from tests.harness.reaching import build_runner

pytestmark = pytest.mark.xdist_group("guest-charts")

USER, PASSWORD = CREDENTIAL
BASIC = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


class Stranger:
    """Another host, over TLS; it notes what it is told, and answers with what it is given."""

    def __init__(
        self, headers: dict[str, str] | None = None, *, asks_for: str = "", takes_basic: bool = False
    ) -> None:
        self.authorizations: set[str] = set()
        self.headers = headers or {}
        self.asks_for = asks_for
        """It has `headers` only for paths with this text, and where `takes_basic` only for those who are unknown."""
        self.takes_basic = takes_basic

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        self.authorizations.add(authorization)
        if (
            not self.headers
            or self.asks_for not in request.path
            or (self.takes_basic and authorization == BASIC)
        ):
            return web.json_response({"token": "t", "name": "charts/kube-vip", "tags": ["0.11.0"]})
        return web.json_response({}, status=401, headers=self.headers)


@asynccontextmanager
async def serving(stranger: Stranger, authority: CertificateAuthority) -> AsyncIterator[str]:
    """Serve on loopback; give its URL, by a name that no source has."""
    runner = web.ServerRunner(web.Server(stranger.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    tls = build_server_tls(authority.issue_server(["127.0.0.1", "localhost"]))
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"https://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return build_authority("private", datetime.now(UTC))


@pytest_asyncio.fixture
async def closed(
    authority: CertificateAuthority, archives: dict[str, Path]
) -> AsyncIterator[ChartRepository]:
    async with ChartRepository(authority=authority, credential=CREDENTIAL) as repository:
        for archive in archives.values():
            repository.publish(archive)
        yield repository


class Charts:
    """The charts that options ask for, fetched by real helm with the Secret of an admin."""

    def __init__(self, program: Path, authority: CertificateAuthority) -> None:
        self.secret = {"username": USER, "password": PASSWORD}
        self.authority = authority.pem.decode()
        access = ChartAccessReader(client=AnsweringClient(get=self._get), namespace="kube-fip")
        self.cache = ChartCache(
            build_runner(str(program), environ={}),
            resolve_seconds=0.0,
            failure_seconds=0.0,
            read_access=access.read,
        )

    async def _get(self, _resource: object, name: str, **_place: str) -> dict[str, Any]:
        if name == "authority":
            return {"data": {"ca.crt": self.authority}}
        return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in self.secret.items()}}

    async def get(self, number: int = 0, **options: str) -> CachedChart:
        settings = settings_with(kubevipChartSecret="charts", kubevipChartCA="authority", **options)
        return await self.cache.get(wanted_releases(settings)[number].source)


@pytest_asyncio.fixture
async def charts(helm_program: Path, authority: CertificateAuthority) -> AsyncIterator[Charts]:
    charts = Charts(helm_program, authority)
    yield charts
    await charts.cache.close()


async def test_beside_a_closed_registry_the_other_charts_repository_is_not_told_its_password(
    charts: Charts,
    fleet: LocalFleet,
    archives: dict[str, Path],
    authority: CertificateAuthority,
    helm_program: Path,
    tmp_path: Path,
) -> None:
    async with (
        OciRegistry(
            program=ensure("registry"),
            folder=tmp_path,
            ports=fleet.ports,
            authority=authority,
            helm=Helm(program=helm_program, home=tmp_path / "home"),
            is_closed=True,
        ) as registry,
        ChartRepository(authority=authority) as public,
    ):
        await registry.push(archives["kube-vip-0.11.0"])
        public.publish(archives["kube-vip-cloud-provider-0.2.10"])
        options = {"kubevipChartRef": registry.reference("kube-vip"), "kubevipChartRepoUrl": public.url}
        assert (await charts.get(0, **options)).identity.version == "0.11.0"
        assert (await charts.get(1, **options)).identity.version == "0.2.10"
        assert public.authorizations == {""}


@pytest.mark.parametrize("path", ["/index.yaml", "/kube-vip-0.11.0.tgz"])
async def test_a_redirect_takes_no_password_to_another_host(
    charts: Charts, closed: ChartRepository, authority: CertificateAuthority, path: str
) -> None:
    stranger = Stranger()
    async with serving(stranger, authority) as url:
        closed.moved[path] = f"{url}{path}"
        with pytest.raises(ChartError) as caught:
            await charts.get(kubevipChartRepoUrl=closed.url)
    assert BASIC in closed.authorizations
    assert stranger.authorizations <= {""}
    if path == "/index.yaml":
        assert caught.value.condition == "ChartUnauthorized"
        assert "localhost" in str(caught.value), "it is told which host would have been asked"


@pytest.mark.parametrize("is_named", [False, True])
async def test_where_a_registry_sends_for_tokens_the_password_goes_only_if_its_secret_names_that_host(
    charts: Charts, authority: CertificateAuthority, is_named: bool
) -> None:
    realm = Stranger()
    async with serving(realm, authority) as realm_url:
        asks = {"WWW-Authenticate": f'Bearer realm="{realm_url}/token",service="charts"'}
        registry = Stranger(asks)
        async with serving(registry, authority) as url:
            host, realm_host = url.removeprefix("https://"), realm_url.removeprefix("https://")
            if is_named:
                charts.secret["hosts"] = f"{host}, {realm_host}"
            with pytest.raises(ChartError) as caught:
                await charts.get(kubevipChartRef=f"oci://{host}/charts/kube-vip")
    assert caught.value.condition == "ChartUnauthorized"
    assert (BASIC in realm.authorizations) is is_named
    assert (realm_host in str(caught.value)) is not is_named


CHALLENGES = {
    "to who is unknown alone": ('Bearer realm="{realm}",service="charts"', {"takes_basic": True}),
    "for manifests alone": ('Bearer realm="{realm}",service="charts"', {"asks_for": "/manifests/"}),
    "behind a tab": ('Bearer\trealm="{realm}"', {}),
    "with spaces": ('Bearer realm = "{realm}"', {}),
    "behind much": ('Bearer scope="' + "x" * 1100 + '",realm="{realm}"', {}),
    "without quotes": ("Bearer realm={realm}", {}),
    "behind another": ('Basic realm="x", Bearer realm="{realm}"', {}),
    "behind an escape": ('Bearer service="a\\"b", realm="{realm}"', {}),
}


@pytest.mark.parametrize("version", ["", pytest.param("0.11.0", marks=pytest.mark.slow)])
@pytest.mark.parametrize("challenge", CHALLENGES)
async def test_a_realm_that_its_secret_does_not_name_gets_no_password_however_a_registry_asks(
    charts: Charts, authority: CertificateAuthority, challenge: str, version: str
) -> None:
    text, how = CHALLENGES[challenge]
    realm = Stranger()
    async with serving(realm, authority) as realm_url:
        asks = {"WWW-Authenticate": text.format(realm=f"{realm_url}/token")}
        registry = Stranger(asks, **how)
        async with serving(registry, authority) as url:
            host = url.removeprefix("https://")
            with pytest.raises(ChartError) as caught:
                await charts.get(kubevipChartRef=f"oci://{host}/charts/kube-vip", kubevipChartVersion=version)
    assert realm.authorizations <= {""}
    assert caught.value.condition == "ChartUnauthorized"


async def test_over_http_a_password_goes_only_where_its_secret_allows_that(
    charts: Charts, archives: dict[str, Path]
) -> None:
    async with ChartRepository(credential=CREDENTIAL) as repository:
        repository.publish(archives["kube-vip-0.11.0"])
        with pytest.raises(ChartError, match="allowHTTP") as caught:
            await charts.get(kubevipChartRepoUrl=repository.url)
        assert caught.value.condition == "ChartUnauthorized"
        assert repository.authorizations == {""}
        charts.secret["allowHTTP"] = "true"
        assert (await charts.get(kubevipChartRepoUrl=repository.url)).identity.version == "0.11.0"
