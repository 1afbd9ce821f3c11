"""Servers to test: over real sockets, in threads of this process."""

import asyncio
import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
import torch
import uvicorn
from conftest import tiny

from deepen.engine import ClosedError, Engine, FullError
from deepen.peers import build
from deepen.reasoner import Reasoner
from deepen.serve import make_app
from deepen.service import EXAMPLES, Limits, Served, Service
from deepen.thinkers import Lanes

GRAPH, FAMILY = EXAMPLES["graph"], EXAMPLES["family"]


class InLoop:
    """An engine that ticks in the event loop of the server: no process to wait for."""

    def __init__(self, engine):
        self.engine, self.slots, self.most_waiting = engine, engine.slots, engine.most_waiting
        self.is_open, self.has_died, self.ticking = False, False, None

    @property
    def active(self):
        return self.engine.active

    def numbers(self):
        return self.engine.numbers()

    def refusal(self):
        return FullError(1.0) if self.engine.num_waiting >= self.most_waiting else None

    async def start(self):
        self.is_open = True

    def submit(self, asks):
        if not self.is_open:
            raise ClosedError("closed")
        self.engine.submit(asks)
        if self.ticking is None or self.ticking.done():
            self.ticking = asyncio.create_task(self.tick())

    async def tick(self):
        while not self.engine.is_idle:
            self.engine.tick_or_fail()
            await asyncio.sleep(1e-4)  # as from outside: others have turns in between

    def refuse(self):
        self.is_open = False

    def abandon(self):
        self.refuse()

    async def close(self):
        self.refuse()
        if self.ticking is not None:
            await self.ticking


def untrained(task, slots=32, most_waiting=256):
    torch.manual_seed(0)
    config = tiny(task, "frontier" if task == "all" else "paper")
    reasoner = Reasoner(build(config.model), config)
    engine = InLoop(Engine(Lanes(reasoner), slots, most_waiting))
    return Served(name=task, reasoner=reasoner, engine=engine, grid=None)


def wait_until(condition, seconds=60):
    """Look again and again; what never comes fails the test instead of keeping it for ever."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} seconds"
        time.sleep(0.01)


@contextmanager
def running(served, key=None, send_buffer=None, **limits):
    """A server in a thread; yields its address."""
    service = Service(served, Limits(**limits))
    app = make_app(service, key)
    listening = socket.create_server(("127.0.0.1", 0))
    if send_buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    # A daemon: a server that does not stop fails its test, and does not keep the others from ending.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    address = listening.getsockname()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        assert server.started, "it did not start"
        yield address
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        if thread.is_alive():
            service.abandon()
            pytest.fail("the server does not stop")


def call(address, body, method="POST", path="/v1/answer", headers=None):
    """Status, headers and content; JSON where it is JSON."""
    connection = HTTPConnection(*address, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, data, headers or {})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    if response.headers.get_content_type() == "application/json":
        content = json.loads(content)
    return response.status, response.headers, content


def refused(address, body, **rest):
    status, _, content = call(address, body, **rest)
    return status, content["error"]["type"], content["error"]["message"]


def metric(address, name):
    text = call(address, None, "GET", "/metrics")[2].decode()
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)[1])
