"""Ask a server: the same calls as on a `Reasoner`, over HTTP, with retries.

Asking again is harmless, so that whatever may pass is tried again: a full queue (when the server says
there may be room), a server that is just starting, a connection that breaks.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from random import random
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from deepen.reasoner import Answer
from deepen.tasks import QuestionError

MAY_PASS = (429, 502, 503)
LONGEST_WAIT = 30.0
RETRY_AFTER = re.compile(r"\d+(\.\d+)?")  # seconds; it may also be a date


class ServerError(RuntimeError):
    """What a server refused, or that it could not be reached; `status` is None in that case."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """A server that answers questions."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        retries: int = 5,
        timeout: float = 60.0,
    ) -> None:
        self.url = url.rstrip("/")
        self.retries = retries
        self.timeout = timeout
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}".encode().decode("latin-1")  # as bytes of UTF-8

    def models(self) -> list[dict[str, Any]]:
        """What can be asked."""
        with self._open("/v1/models", None) as response, _reading():
            found: list[dict[str, Any]] = json.load(response)["models"]
        return found

    def answer(self, question: Any, steps: int | None = None, **rest: Any) -> Answer:
        """Answer one question in `steps` steps; None: until the state settles."""
        return self.answer_many([question], steps, **rest)[0]

    def answer_many(
        self,
        questions: Sequence[Any],
        steps: int | None = None,
        *,
        model: str | None = None,
        halt: bool | None = None,
        deadline_ms: float | None = None,
        trace: bool = True,
    ) -> list[Answer]:
        """Answer several, in order; `model` may be left out if the server has only one.

        With `halt`, `steps` is the most they take: they stop when their state has settled.
        """
        asked = {"model": model, "questions": list(questions), "steps": steps, "halt": halt, "trace": trace}
        with self._open("/v1/answer", {**asked, "deadline_ms": deadline_ms}) as response, _reading():
            answers = json.load(response)["answers"]
        return [Answer(**{**one, "trace": one["trace"] or []}) for one in answers]

    def stream(
        self, question: Any, steps: int | None = None, *, model: str | None = None
    ) -> Iterator[tuple[int, float]]:
        """The number of each step and the probability after it, as they are taken."""
        asked = {"model": model, "question": question, "steps": steps, "stream": True}
        with self._open("/v1/answer", asked) as response:
            event = ""
            with _reading():
                for line in response:
                    name, _, value = line.decode().strip().partition(": ")
                    if name == "event":
                        event = value
                    elif name == "data" and event == "step":
                        data = json.loads(value)
                        yield data["step"], data["probability"]
                    elif name == "data" and event == "error":
                        raise ServerError(json.loads(value)["error"]["message"])
            if event != "answer":
                raise ServerError("the stream broke off before the answer")

    @contextmanager
    def _open(self, path: str, body: dict[str, Any] | None) -> Iterator[HTTPResponse]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, self._headers)
        for left in range(self.retries, -1, -1):
            try:
                response = urlopen(request, timeout=self.timeout)
                break
            except HTTPError as error:
                status, message = error.code, _message(error)
                if status not in MAY_PASS or not left:
                    if status == 422:
                        raise QuestionError(message) from None
                    raise ServerError(message, status) from None
                told = error.headers.get("Retry-After", "")
                wait = float(told) if RETRY_AFTER.fullmatch(told) else _backoff(self.retries - left)
            except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
                if not left:
                    raise ServerError(f"no answer from {self.url}: {error}") from None
                wait = _backoff(self.retries - left)
            # Not all at the same moment, and never for ever.
            time.sleep(min(wait, LONGEST_WAIT) * (1 + random() / 4))
        with response:
            yield response


@contextmanager
def _reading() -> Iterator[None]:
    """A connection that breaks in the middle of an answer."""
    try:
        yield
    except (HTTPException, OSError) as error:
        raise ServerError(f"the answer broke off: {error}") from None


def _backoff(tried: int) -> float:
    return 0.25 * 2.0**tried


def _message(error: HTTPError) -> str:
    try:
        message: str = json.load(error)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}"
    return message
