"""The server of the web UI: GET only, relative links only, nothing of what a stranger wrote but as text.

Rancher serves it under a path of its own, on its own origin: a script that got in here would have a Rancher session.
So autoescape has no exception, and the Content-Security-Policy allows only its own style and script.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any
from urllib.parse import quote

import jinja2
from aiohttp import web

from fipop.errors import FipopError
from fipop.report.addresses import (
    AddressReport,
    describe_services,
    find_nearest,
    report_all,
    report_holdings,
    search,
)
from fipop.report.findings import Subject, summarize
from fipop.report.maps import draw_map
from fipop.report.page.snapshots import Snapshots
from fipop.report.rendering import age, moment
from fipop.report.snapshot import Kind
from fipop.report.status import StatusReport, describe_wait, find_waits
from fipop.rollout.plan import describe_change
from fipop.texts import sentence

logger = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGE_ROWS = 500
MOST_FOUND = 200
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page:
    """Answers for the web UI.

    What comes from loopback (a browser of this machine, or one behind `kubectl port-forward`) must name loopback as its
    host: another name that leads here is a web site that wants to read the page (DNS rebinding).
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._templates = build_environment()

    def build_app(self) -> web.Application:
        """Return the server. All paths are flat, because links are relative."""
        routes: dict[str, Handler] = {
            "/": self._overview,
            "/range": self._range,
            "/floating-ips": self._floating_ips,
            "/guests": self._guests,
            "/guest": self._guest,
            "/rollout": self._rollout,
            "/search": self._search,
            "/healthz": self._healthz,
            **{f"/{name}": _serve_static(name, kind) for name, kind in _STATIC.items()},
        }

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            is_rebound = is_local_host(request.remote or "") and not is_local_host(request.host)
            if is_rebound and request.path != "/healthz":  # a probe can come from a proxy beside it
                return web.Response(
                    status=421, text="Open this page as http://localhost or http://127.0.0.1.\n"
                )
            try:
                return await handler(request)
            except web.HTTPNotFound:
                return self._fail(404, "Not found", "This page does not exist")
            except web.HTTPException:
                raise
            except FipopError as error:
                logger.warning("Could not show the web UI", extra={"error": str(error)})
                return self._fail(502, "Could not read the cluster", str(error))
            except Exception:
                logger.exception("Could not build a page of the web UI", extra={"path": request.path})
                return self._fail(500, "Could not build this page", "The log of fipop web has the cause")

        app = web.Application(middlewares=[guard])
        app.on_response_prepare.append(_add_headers)
        app.add_routes(web.get(path, handler) for path, handler in routes.items())
        return app

    def _fail(self, status: int, title: str, problem: str, nearest: str = "") -> web.Response:
        return self._render(
            "error.html", status=status, title=title, problem=sentence(problem), nearest=nearest
        )

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _overview(self, request: web.Request) -> web.Response:
        found = await self._snapshots.get()
        problems = found.problems if "all" in request.query else summarize(found.problems)
        return self._show(
            "overview.html",
            found,
            problems=problems[:PAGE_ROWS],
            hidden=len(found.problems) if len(problems) < len(found.problems) else 0,
            are_ranges_read=found.snapshot.is_read(Kind.RANGES),
        )

    async def _range(self, request: web.Request) -> web.Response:
        found = await self._snapshots.get()
        name = request.query.get("name", "")
        report = next((each for each in found.ranges if each.range.name == name), None)
        if report is None:
            why = "does not exist" if found.snapshot.is_read(Kind.RANGES) else "could not be read"
            nearest = find_nearest(found.snapshot, name)
            return self._fail(404, "Not found", f'range "{name}" {why}', nearest)
        try:
            block = request.query.get("block", "")
            drawn = draw_map(found.snapshot, name, block) if found.snapshot.is_counted else None
        except ValueError:
            return self._fail(404, "Not found", f'range "{name}" has no such block')
        return self._show(
            "range.html", found, shown=report, map=drawn, **_cut(report_all(found.snapshot, name))
        )

    async def _floating_ips(self, request: web.Request) -> web.Response:
        found = await self._snapshots.get()
        only = request.query.get("ready", "")
        chosen = (each for each in found.floating_ips if only in ("", each.ready.status.value))
        return self._show("floating_ips.html", found, only=only, **_cut(chosen))

    async def _guests(self, request: web.Request) -> web.Response:
        found = await self._snapshots.get()
        only_unreachable = request.query.get("reachable") == "no"
        chosen = (each for each in found.guests if not only_unreachable or each.reachable is False)
        return self._show("guests.html", found, only_unreachable=only_unreachable, **_cut(chosen))

    async def _guest(self, request: web.Request) -> web.Response:
        found = await self._snapshots.get()
        snapshot, guest_id = found.snapshot, request.query.get("id", "")
        holdings = report_holdings(snapshot, (guest_id,))
        known = {each.id: each for each in found.guests}
        if guest_id not in known and not holdings and not snapshot.cluster_of(guest_id):
            problem = f'guest cluster "{guest_id}" is not known: Rancher has none of this id, and no address names it'
            return self._fail(404, "Not found", problem, find_nearest(snapshot, guest_id))
        return self._show(
            "guest.html",
            found,
            id=guest_id,
            cluster=snapshot.cluster_of(guest_id, guest_id),
            shown=known.get(guest_id),
            part=snapshot.installation.rollout_parts.get(guest_id),
            problems=[each for each in found.problems if guest_id in each.subject.guests],
            **_cut(holdings),
        )

    async def _rollout(self, _request: web.Request) -> web.Response:
        found = await self._snapshots.get()
        return self._show("rollout.html", found, **_cut(found.snapshot.installation.rollout_parts.items()))

    async def _search(self, request: web.Request) -> web.Response:
        found = await self._snapshots.get()
        asked = request.query.get("q", "").strip()[:253]
        answers = tuple(islice(_search(found, asked), MOST_FOUND)) if asked else ()
        waits = find_waits(found.snapshot, asked)[:MOST_FOUND] if asked else ()
        nearest = find_nearest(found.snapshot, asked) if asked and not (answers or waits) else ""
        doubt = found.snapshot.describe_ambiguity(asked) if asked else ""
        return self._show(
            "search.html",
            found,
            asked=asked,
            answers=answers,
            waits=waits,
            most=MOST_FOUND,
            nearest=nearest,
            doubt=doubt,
        )

    def _show(self, template: str, found: StatusReport, **values: object) -> web.Response:
        return self._render(template, status=200, report=found, **values)

    def _render(self, template: str, *, status: int, **values: object) -> web.Response:
        text = self._templates.get_template(template).render(**values)
        return web.Response(status=status, text=text, content_type="text/html", charset="utf-8")


@cache
def build_environment() -> jinja2.Environment:
    """Return the templates, compiled once: autoescape everywhere, and an unknown name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fipop.report.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["moment"] = moment
    environment.filters["services"] = describe_services
    environment.filters["wait"] = describe_wait
    environment.filters["change"] = describe_change
    environment.filters["page"] = find_page
    environment.filters["age"] = lambda span: age(span.total_seconds()) if isinstance(span, timedelta) else ""
    return environment


def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine by its loopback address, or as localhost."""
    for name in (host, host.rpartition(":")[0]):
        bare = name.removeprefix("[").removesuffix("]").rstrip(".").lower()
        try:
            if bare == "localhost" or ipaddress.ip_address(bare).is_loopback:
                return True
        except ValueError:
            continue
    return False


def find_page(subject: Subject) -> str:
    """Return the link to the page that is about the subject of a finding; "" if there is none."""
    if subject.kind == "FloatingIPRange":
        return f"range?name={quote(subject.name)}"
    if subject.kind == "Address":
        return f"search?q={quote(subject.name)}"
    return f"guest?id={quote(min(subject.guests))}" if subject.guests else ""


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add them to every answer, also one that no handler made (404, 405), unless its handler set them."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _serve_static(name: str, kind: str) -> Handler:
    body = (resources.files("fipop.report.page") / "static" / name).read_bytes()

    async def serve(_request: web.Request) -> web.Response:
        headers = {"Cache-Control": "max-age=300"}
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)

    return serve


def _cut(rows: Iterable[object]) -> dict[str, Any]:
    """Return what a table shows of rows: the first PAGE_ROWS, and how many more there are."""
    rest = iter(rows)
    return {"rows": tuple(islice(rest, PAGE_ROWS)), "more": sum(1 for _ in rest)}


def _search(report: StatusReport, asked: str) -> Iterator[AddressReport]:
    """Find what `fipop who` finds, else every address with the text in its names."""
    found = search(report.snapshot, asked)
    if found:
        yield from found
        return
    wanted = asked.lower()
    for each in report_all(report.snapshot):
        texts = [each.address, *each.services]
        if each.owner is not None:
            texts += (str(each.owner), each.owner.shown)
        if any(wanted in text.lower() for text in texts):
            yield each
