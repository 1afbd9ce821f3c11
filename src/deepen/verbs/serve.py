"""deepen serve: questions over HTTP."""

import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import tyro

from deepen.console import errors_in_one_line, fail, say
from deepen.memory import never_look_at_again
from deepen.reasoner import shipped
from deepen.service import Limits, Service, open_models

BACKLOG = 2048  # connections that may wait to be taken


@dataclass(frozen=True, kw_only=True)
class ServeCommand:
    """Answer questions over HTTP, with a playground at /."""

    model: tuple[str, ...] = field(default_factory=lambda: tuple(shipped()))
    """Checkpoints that come with the package, by name, and run folders; by default all that come with it."""
    host: str = "127.0.0.1"
    """The address to listen on; only this machine can reach the default one."""
    port: int = 8000
    """The port to listen on; 0 takes a free one."""
    slots: int = 32
    """How many questions think at once, for each model: fewer answer sooner, more answer more."""
    most_waiting: int = 256
    """How many more may wait before the server says 429."""
    shutdown_seconds: int = 120
    """How long it may take to finish what was accepted, after a signal to stop."""
    limits: Limits = field(default_factory=Limits)
    api_key_file: Path | None = None
    """A file with the key that requests must carry; else the variable DEEPEN_API_KEY, else none is needed."""
    log_questions: bool = False
    """Whether the log shows what was asked."""
    threads: int = 1
    """Threads of one step; small models are fastest with one."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""


def serve_verb(arguments: Sequence[str]) -> None:
    with errors_in_one_line("serve"):
        command = tyro.cli(ServeCommand, prog="deepen serve", args=arguments)
    try:
        import uvicorn

        from deepen.serve import LeavingServer, make_app
    except ImportError as error:
        fail(f"serving needs more packages ({error.name} is missing): pip install 'deepen[serve]'")
    if not command.model:
        fail("name a model with --model: none comes with the package")
    for name in ("threads", "most_waiting", "shutdown_seconds"):
        if getattr(command, name) < 1:
            fail(f"--{name.replace('_', '-')} must be at least 1, got {getattr(command, name)}")
    key = _key(command.api_key_file)
    served = open_models(command.model, command.slots, command.most_waiting, command.device, command.threads)
    service = Service(served, command.limits)
    listening = _listen(command.host, command.port)
    app = make_app(service, key, command.log_questions)
    _log_as_json()
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=command.shutdown_seconds
    )
    host, port = listening.getsockname()[:2]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    say(f"serving {', '.join(one.name for one in served)} on http://{where}")
    never_look_at_again()
    try:
        LeavingServer(config, service).run(sockets=[listening])
    finally:
        service.abandon()


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        fail(f"--port must be between 0 and {2**16 - 1}, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        fail(f"cannot listen on {host}, port {port}: {error.strerror}")
    # Connections inherit it. Else an answer's second packet waits for the first to be acknowledged, 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _key(file: Path | None) -> str | None:
    key = os.environ.get("DEEPEN_API_KEY") if file is None else file.read_text().strip()
    if key is not None and not key:
        fail(f"the key in {file or 'DEEPEN_API_KEY'} is empty")
    return key


class JsonLines(logging.Formatter):
    """A line of JSON for each event."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
