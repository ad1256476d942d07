"""A real Chromium, driven over its own protocol: pages, clicks, console, requests, screenshots."""

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from localfleet.processes import Process

_START_SECONDS = 30.0
_CALL_SECONDS = 20.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank"),
)


@dataclass(slots=True)
class Tab:
    """One tab. `complaints` are errors and warnings of its console, `requests` the URLs that it asked for."""

    _socket: aiohttp.ClientWebSocketResponse
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _answers: dict[int, "asyncio.Future[Any]"] = field(default_factory=dict)
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol."""
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_CALL_SECONDS):
            return await answer

    async def open(self, url: str) -> None:
        """Go to a page, and return when it has loaded."""
        self._loaded.clear()
        went = await self.call("Page.navigate", url=url)
        assert "errorText" not in went, went
        async with asyncio.timeout(_CALL_SECONDS):
            await self._loaded.wait()

    async def after(self, script: str) -> None:
        """Do what leads to another page, and return when that has loaded."""
        self._loaded.clear()
        await self.run(script)
        async with asyncio.timeout(_CALL_SECONDS):
            await self._loaded.wait()

    async def run(self, script: str) -> Any:
        """Run a script in the page; its value."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def press(self, key: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **(text if kind == "keyDown" else {}),
            )

    async def show_as(self, *, scheme: str = "light", width: int = 1280, height: int = 900) -> None:
        """Have a color scheme and a size."""
        await self.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def screenshot(self, path: Path) -> None:
        """Write what is seen, in the format that the name of the file ends with."""
        found = await self.call("Page.captureScreenshot", format=path.suffix[1:], quality=70)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))

    async def listen(self) -> None:
        """Take in what the browser says, until it is gone."""
        async for message in self._socket:
            found = json.loads(message.data)
            if "id" in found:
                answer = self._answers.pop(found["id"])
                if "error" in found:
                    answer.set_exception(RuntimeError(str(found["error"])))
                else:
                    answer.set_result(found["result"])
            else:
                self._take(found["method"], found["params"])

    def _take(self, method: str, told: Any) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in {"error", "warning", "assert"}:
            self.complaints.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(told["entry"]["text"])


@asynccontextmanager
async def open_browser(program: Path, folder: Path) -> AsyncIterator[Tab]:
    """Start Chromium with a profile of its own and give its one tab."""
    profile = folder / "profile"
    argv = [str(program), f"--user-data-dir={profile}", *_FLAGS]
    process = Process("chromium", argv, log=folder / "chromium.log", environment={"HOME": str(folder)})
    await process.start()
    told = profile / "DevToolsActivePort"

    async def is_there() -> bool:
        return told.exists() and len(told.read_text().splitlines()) > 1

    try:
        await process.wait_until(is_there, timeout_seconds=_START_SECONDS)
        port = told.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                page = next(each for each in await answer.json() if each["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await tab.call(f"{domain}.enable")
                yield tab
                listening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await listening
    finally:
        await process.stop()
