"""HTTP around the engine: this file parses, calls the engine and formats; the rest is elsewhere.

    POST /v1/answer              one question or several; as JSON, or step by step as server-sent events
    GET  /v1/models              what can be asked
    GET  /v1/models/NAME/grid    where a model solves what
    GET  /healthz  /readyz       it lives; it takes questions
    GET  /metrics                for Prometheus
    GET  /                       the playground

Nothing of a question is logged unless asked for. A key, if there is one, is needed for /v1 and /metrics.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from time import monotonic, perf_counter
from types import FrameType
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from deepen.config import explain
from deepen.engine import Ask, ClosedError, DeadlineError, FullError
from deepen.grid import Grid
from deepen.metrics import Metrics
from deepen.reasoner import Answer
from deepen.service import (
    EXAMPLES,
    AnswerRecord,
    AnswerRequest,
    AnswerResponse,
    ErrorBody,
    ErrorResponse,
    LimitError,
    ModelsResponse,
    RequestError,
    Served,
    Service,
    UnknownModelError,
)
from deepen.tasks import QuestionError
from deepen.wire import LimitBody, Logged, RefuseWhenFull


class KeyRefusedError(Exception):
    """No key, or a wrong one."""


class GoneError(Exception):
    """A client that does not wait for its answer; only the log will show it."""


PLAYGROUND = Path(__file__).parent / "playground"
LOOK_FOR_THE_CLIENT = 0.2  # seconds between two looks whether it is still there
SAY_GOODBYE = 0.5  # seconds in which those who had connected already are told that it is over
MOST_UNSENT = 10_000  # events that a stream may be ahead of its reader
LONGEST_MESSAGE = 1_000  # characters
STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (LimitError, 413, "limit"),
    (UnknownModelError, 404, "model"),
    (FullError, 429, "full"),
    (ClosedError, 503, "closed"),
    (DeadlineError, 504, "deadline"),
    (GoneError, 499, "gone"),
    (RequestError, 422, "request"),
    (QuestionError, 422, "question"),
)
"""The first that fits."""
MEANING = {
    400: "not JSON",
    401: "no key, or a wrong one",
    404: "no such model",
    408: "the request came too slowly",
    413: "more than the server takes",
    422: "a malformed request or question",
    429: "too many questions are waiting",
    503: "shutting down",
    504: "the deadline passed",
}

log = logging.getLogger("deepen.serve")


def make_app(service: Service, key: str | None = None, log_questions: bool = False) -> FastAPI:
    """The application; its engines start and stop with it."""
    metrics = Metrics(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.close()

    async def check_key(request: Request) -> None:
        assert key is not None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.encode("latin-1"), key.encode())
        if not right or scheme.lower() != "bearer":
            raise KeyRefusedError

    app = FastAPI(
        title="Deepen",
        description="Depth-recurrent Transformers that think deeper instead of longer.",
        lifespan=lifespan,
        redoc_url=None,
        docs_url=None,
    )
    app.add_middleware(LimitBody, limits=service.limits)
    app.add_middleware(RefuseWhenFull, service=service)
    app.add_middleware(Logged)  # the last one added is the first to see a request
    # The first only tells the documentation that there is a key.
    guarded = [] if key is None else [Depends(HTTPBearer(auto_error=False)), Depends(check_key)]

    @app.post(
        "/v1/answer",
        response_model=AnswerResponse,
        responses={**_errors(400, 401, 404, 408, 413, 422, 429, 503, 504), 200: STREAMED},
        dependencies=guarded,
        openapi_extra={"requestBody": {"content": {"application/json": {"examples": _examples(service)}}}},
    )
    async def answer(request: Request, asked: AnswerRequest) -> Response:
        """Answer one question, or several."""
        served = service.find(asked.model, asked.every_question)
        asks = served.asks(asked, service.limits)
        request.state.said |= {"model": served.name, "questions": len(asks)}
        if log_questions:
            request.state.said["asked"] = asked.every_question
        began = perf_counter()
        if asked.stream:
            events = _streamed(served, asks)  # submits at once: a full queue is still a proper 429
            return StreamingResponse(
                _noted(events, metrics, served, asks, began), media_type="text/event-stream"
            )
        served.engine.submit(asks)
        try:
            answers = await _answers(asks, request)
        finally:
            metrics.answered(served.name, asks, perf_counter() - began)
        request.state.said["steps"] = sum(one.steps for one in answers)
        records = [AnswerRecord.of(one, asked.trace) for one in answers]
        return JSONResponse(AnswerResponse(model=served.name, answers=records).model_dump())

    @app.get("/v1/models", responses=_errors(401), dependencies=guarded)
    async def models() -> ModelsResponse:
        """What can be asked."""
        return service.models()

    @app.get("/v1/models/{name}/grid", responses=_errors(401, 404), dependencies=guarded)
    async def grid(name: str) -> Grid:
        """Where a model solves what."""
        found = service.find(name).grid
        if found is None:
            raise UnknownModelError(f"model '{name}' has no grid: measure one with 'deepen grid {name}'")
        return found

    @app.get("/healthz", response_class=PlainTextResponse, responses=_errors(503))
    async def healthz() -> str:
        """It lives; if not, start it anew."""
        if not service.is_alive:
            raise ClosedError("an engine has died")
        return "ok"

    @app.get("/readyz", response_class=PlainTextResponse, responses=_errors(503))
    async def readyz() -> str:
        """It takes questions."""
        if not service.is_open:
            raise ClosedError("it takes no questions")
        return "ok"

    @app.get("/metrics", response_class=PlainTextResponse, responses=_errors(401), dependencies=guarded)
    async def show_metrics() -> Response:
        """For Prometheus."""
        return Response(metrics.exposed(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PLAYGROUND / "index.html")

    @app.get("/playground/{file}", include_in_schema=False)
    async def part(file: str) -> FileResponse:
        path = PLAYGROUND / file
        if path.name not in {one.name for one in PLAYGROUND.iterdir()}:
            raise HTTPException(404)
        return FileResponse(path)

    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(KeyRefusedError, _key_refused)
    for kind, _, _ in STATUS:
        app.add_exception_handler(kind, _known_error)
    app.add_exception_handler(Exception, _unknown_error)
    return app


class LeavingServer(uvicorn.Server):
    """On a signal it takes no more questions, says so to those who still come, and then stops listening."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._leaves_at = inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._leaves_at < inf:  # a second signal means at once
            self.should_exit = self.force_exit = True
            return
        self._service.refuse()
        self._signal = sig
        self._leaves_at = monotonic() + SAY_GOODBYE

    async def on_tick(self, counter: int) -> bool:
        if monotonic() >= self._leaves_at and not self.should_exit:
            super().handle_exit(self._signal, None)
        return await super().on_tick(counter)


async def _answers(asks: Sequence[Ask], request: Request) -> list[Answer]:
    """Wait for all; if one fails or the client goes away, nobody waits for the others."""
    everyone = asyncio.gather(*(asyncio.wrap_future(ask.future) for ask in asks))
    everyone.add_done_callback(lambda done: done.cancelled() or done.exception())  # someone has looked
    try:
        while not (await asyncio.wait([everyone], timeout=LOOK_FOR_THE_CLIENT))[0]:
            if await request.is_disconnected():
                raise GoneError
        return everyone.result()
    finally:
        everyone.cancel()
        for ask in asks:
            ask.future.cancel()


def _streamed(served: Served, asks: Sequence[Ask]) -> AsyncIterator[str]:
    """The steps of all questions as they are taken, then their answers."""
    events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
    is_read = True

    def tell(event: str, data: dict[str, Any]) -> None:
        nonlocal is_read
        events.put_nowait((event, data))
        if is_read and events.qsize() > MOST_UNSENT:  # a deaf client: nobody thinks for it any longer
            is_read = False
            for ask in asks:
                ask.future.cancel()

    for place, ask in enumerate(asks):
        ask.watch = lambda step, probability, place=place: tell(
            "step", {"question": place, "step": step, "probability": probability}
        )
    served.engine.submit(asks)
    for place, ask in enumerate(asks):

        def finish(done: Any, place: int = place, ask: Ask = ask) -> None:
            error = GoneError("too many events have not been read") if done.cancelled() else done.exception()
            if error is None:
                record = AnswerRecord.of(done.result(), trace=ask.trace is not None)
                tell("answer", {"question": place, **record.model_dump()})
            else:
                status, kind, message = _described(error)
                if status == 500:
                    log.error("failed", exc_info=error)
                tell("error", {"question": place, "error": {"type": kind, "message": message}})

        ask.future.add_done_callback(finish)

    async def every() -> AsyncIterator[str]:
        left = len(asks)
        while left:
            event, data = await events.get()
            left -= event != "step"
            yield f"event: {event}\ndata: {json.dumps(data)}\n\n"

    return every()


async def _noted(
    events: AsyncIterator[str], metrics: Metrics, served: Served, asks: Sequence[Ask], began: float
) -> AsyncIterator[str]:
    """The same events; whoever has not been answered when the client goes away is let go."""
    try:
        async for event in events:
            yield event
    finally:
        for ask in asks:
            ask.future.cancel()
        metrics.answered(served.name, asks, perf_counter() - began)


def _described(error: BaseException) -> tuple[int, str, str]:
    """Status, type and sentence; what is unknown is not told to the client."""
    for kind, status, name in STATUS:
        if isinstance(error, kind):
            return status, name, str(error)
    return 500, "internal", "something went wrong inside"


def _response(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    # What someone sent and an error repeats may be long, or no text that can be written.
    readable = message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()
    body = ErrorResponse(error=ErrorBody(type=kind, message=readable))
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)


async def _known_error(request: Request, error: Exception) -> Response:
    status, kind, message = _described(error)
    retry = {"Retry-After": f"{error.retry_after:.0f}"} if isinstance(error, FullError) else None
    return _response(status, kind, message, retry)


async def _unknown_error(request: Request, error: Exception) -> Response:
    return _response(*_described(error))  # the web server logs it


async def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if any(one["type"] == "json_invalid" for one in error.errors()):
        return _response(400, "request", "the request is not JSON")
    return _response(422, "request", explain(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "request" if error.status_code < 500 else "internal"
    return _response(error.status_code, kind, str(error.detail), error.headers)


async def _key_refused(request: Request, error: Exception) -> Response:
    return _response(401, "key", "a key is needed: Authorization: Bearer KEY", {"WWW-Authenticate": "Bearer"})


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorResponse, "description": MEANING[status]} for status in statuses}


STREAMED: dict[str, Any] = {
    "description": "The answers; with `stream`, an event for each step and each answer",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


def _examples(service: Service) -> dict[str, Any]:
    """For the documentation: a question for each model."""
    tasks = {name: served.reasoner.config.task for name, served in service.by_name.items()}
    return {
        name: {
            "summary": f"a question for the model '{name}'",
            "value": {"model": name, "question": EXAMPLES[task], "steps": 12},
        }
        for name, task in tasks.items()
    }
