"""The page of experiments/frontier shows what was measured, and nothing else."""

import importlib
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "experiments" / "frontier"


@pytest.mark.parametrize("script", ["specialists", "halting", "one_model", "why", "limits"])
def test_tables_are_made_from_the_stored_rows(script, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    stored = json.loads((FOLDER / f"{script}.json").read_text())
    page = (FOLDER / "README.md").read_text()
    for name, table in importlib.import_module(script).tables(stored).items():
        (shown,) = re.findall(f"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", page, re.DOTALL)
        assert shown == table
