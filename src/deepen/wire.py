"""What happens to a request before it is read and after it is answered.

There must be room for it; it must be small and come in time; the answer gets headers that tell browsers to
be careful; a line in the log says what it was, but nothing of what was asked.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepen.service import Limits, Service

log = logging.getLogger("deepen.serve")
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
CLOSE = {"connection": "close"}  # what is left of the request is not read
STILL_READ = 8  # times the largest body: a client hears nothing before it has sent everything


class Logged:
    """Add the headers; write a line when everything has been sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = perf_counter()
        line: dict[str, Any] = {"method": scope["method"], "path": scope["path"], "status": None}
        # Whoever answers may say more about it.
        said: dict[str, Any] = {}
        scope["state"] = {**scope.get("state", {}), "said": said}

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                line["status"] = message["status"]
                careful = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *careful]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception:
            line["status"] = 500  # which is sent by whoever catches it
            raise
        finally:
            line["ms"] = round(1000 * (perf_counter() - began), 2)
            log.info("request", extra={"fields": {**line, **said}})


class RefuseWhenFull:
    """Say 429 before anything is read: when too many ask, refusing must cost little."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks = scope["type"] == "http" and (scope["method"], scope["path"]) == ("POST", "/v1/answer")
        if asks and (full := self.service.refusal()) is not None:
            await _refuse(send, 429, "full", str(full), {"retry-after": f"{full.retry_after:.0f}"})
        else:
            await self.app(scope, receive, send)


class LimitBody:
    """Take the whole body first; refuse one that is too large or too slow."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._whole(receive), self.limits.body_seconds)
        except TimeoutError:
            message = f"the request took over {self.limits.body_seconds:g} s"
            await _refuse(send, 408, "request", message, CLOSE)
            return
        if body is None:
            message = f"a request of over {self.limits.body_bytes} bytes is more than this server takes"
            await _refuse(send, 413, "limit", message, CLOSE)
            return
        # A request is JSON whatever it calls itself.
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*headers, (b"content-type", b"application/json")]
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self.app(scope, replay, send)

    async def _whole(self, receive: Receive) -> bytes | None:
        """All of it; None if that is too much."""
        parts, size, more = [], 0, True
        most = self.limits.body_bytes
        while more and size <= STILL_READ * most:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            part = message.get("body", b"")
            size += len(part)
            if size <= most:
                parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts) if size <= most else None


async def _refuse(send: Send, status: int, kind: str, message: str, headers: Mapping[str, str]) -> None:
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()
    every = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    as_bytes = [(name.encode(), value.encode()) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": as_bytes})
    await send({"type": "http.response.body", "body": body})
