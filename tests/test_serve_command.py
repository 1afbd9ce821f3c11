"""`deepen serve` as a user starts and stops it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from serving import GRAPH, call, metric, refused, wait_until


def is_ready(address):
    try:
        return call(address, None, "GET", "/readyz")[0] == 200
    except OSError:
        return False


@contextmanager
def command(*arguments, **environment):
    """`deepen serve` as a user starts it; yields the process, the address and what it writes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "deepen", "serve", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
    reader.start()
    try:
        serving = re.compile(r"on http://([\d.]+):(\d+)$", re.MULTILINE)
        wait_until(lambda: process.poll() is not None or serving.search("".join(lines)))
        found = serving.search("".join(lines))
        assert found, f"it did not start: {lines}"
        address = found[1], int(found[2])
        wait_until(lambda: is_ready(address))
        yield process, address, lines
    finally:
        process.kill()
        process.wait()
        reader.join(timeout=60)
        assert not reader.is_alive(), "someone else holds on to its output: an engine outlives its server"
        process.stderr.close()


def test_sigterm_finishes_what_was_accepted(tmp_path):
    with command("--model", "graph", "--slots", "4", "--limits.steps", "100000") as (process, address, lines):
        body = {"questions": [GRAPH] * 8, "steps": 1000}
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(call, address, body) for _ in range(4)]
            wait_until(lambda: metric(address, 'deepen_active_slots{model="graph"}') == 3)
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: not is_ready(address))  # until the signal has arrived
            with suppress(OSError):  # half a second later nobody listens any more
                assert call(address, body)[0] == 503
            for one in waiting:
                status, _, content = one.result()
                assert status == 200
                assert [answer["label"] for answer in content["answers"]] == [True] * 8
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)
        with pytest.raises(OSError, match="refused"):
            call(address, body)
    requests = [json.loads(line) for line in lines if '"event": "request"' in line]
    assert {"model": "graph", "questions": 8, "steps": 8000}.items() <= requests[-1].items()
    assert not any("source" in line for line in lines), "questions are not logged"


def test_an_engine_that_dies():
    with command("--model", "graph") as (process, address, lines):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (engine,) = [pid for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(int(engine), signal.SIGKILL)
        wait_until(lambda: call(address, None, "GET", "/healthz")[0] != 200)
        assert refused(address, {"question": GRAPH, "steps": 2})[:2] == (503, "closed")
        assert call(address, None, "GET", "/readyz")[0] == 503
    (line,) = [json.loads(line) for line in lines if "has ended" in line]
    assert (line["level"], line["model"], line["exit"]) == ("error", "graph", -signal.SIGKILL)


def test_a_second_signal_means_at_once():
    with command("--limits.steps", "1000000") as (process, address, _):
        body = {"questions": [GRAPH] * 8, "steps": 10**6}
        with ThreadPoolExecutor(1) as pool:
            pool.submit(call, address, body).add_done_callback(lambda done: done.exception())
            wait_until(lambda: metric(address, 'deepen_active_slots{model="graph"}') == 8)
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: not is_ready(address))  # else two signals can arrive as one
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)


def test_the_key_comes_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "key"
    file.write_text("secret\n")
    with command("--api-key-file", str(file), "--log-questions") as (_, address, lines):
        assert call(address, {"question": GRAPH, "steps": 2})[0] == 401
        assert (
            call(address, {"question": GRAPH, "steps": 2}, headers={"Authorization": "Bearer secret"})[0]
            == 200
        )
        wait_until(lambda: any('"source": "d"' in line for line in lines))
    with command(DEEPEN_API_KEY="other") as (_, address, _):
        assert (
            call(address, {"question": GRAPH, "steps": 2}, headers={"Authorization": "Bearer other"})[0]
            == 200
        )
        assert call(address, {"question": GRAPH, "steps": 2})[0] == 401


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--model", "nothing"], "no run folder or weights file 'nothing'"),
        (["--slots", "1"], "at least 2 slots"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--most-waiting", "-5"], "--most-waiting must be at least 1"),
        (["--port", "70000"], "--port must be between 0 and 65535"),
        (["--host", "203.0.113.1"], "cannot listen on 203.0.113.1, port 8000"),
        (["--limits.steps", "0"], "greater than or equal to 1"),
        (["--model", "graph", "graph"], "two models are called 'graph'"),
        (["--api-key-file", "/dev/null"], "is empty"),
    ],
)
def test_bad_input_of_serve(arguments, why, capsys):
    from deepen.__main__ import main

    threads = torch.get_num_threads()
    with pytest.raises(SystemExit) as ended:
        main(["serve", *arguments])
    torch.set_num_threads(threads)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
