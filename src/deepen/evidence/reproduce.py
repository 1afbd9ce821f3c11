"""Piece + plan -> evidence: train what is missing, measure, write down, draw.

What a run showed is written down as soon as it was measured, in <budget>.unfinished.jsonl: an interrupted
reproduction goes on from there, even where the run folders are gone. Finished results are left as they are,
and those of some tasks are used again when others are added.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from deepen.config import Record
from deepen.evidence.piece import (
    Evidence,
    EvidenceError,
    Job,
    Piece,
    Plan,
    Row,
    Trained,
    published_shares,
    read_evidence,
)
from deepen.evidence.tables import select
from deepen.model import Model
from deepen.progress import Bar
from deepen.runs import Run, load_model, provenance, write_atomically
from deepen.train import train


def reproduce(piece: Piece, plan: Plan, runs: Path, out: Path) -> Evidence:
    """Leave the rows in OUT/<budget>.json and the picture beside them; what is finished is not done again."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{plan.stem}.json"
    unfinished = file.with_suffix(".unfinished.jsonl")
    before = _read_unfinished(unfinished, plan)
    jobs = piece.jobs(plan)
    names = [(job.config.task, job.config.seed, *job.names.items()) for job in jobs]
    assert len(set(names)) == len(names), "rows could not be told apart"
    if file.exists():
        there = read_evidence(file)
        if there.plan == plan:
            piece.draw(there, file.with_suffix(".png"))
            return there
        before += _of_fewer_tasks(file, there, plan, jobs)
    measured = []
    for number, job in enumerate(jobs, start=1):
        one = next((one for one in before if one.is_of(job)), None)
        if one is None:
            model, trained = train_missing(job, runs, f"{number}/{len(jobs)}")
            own = {"task": job.config.task, "seed": job.config.seed, **job.names}
            rows = tuple({**own, **row} for row in piece.measure(model, job.config, plan))
            one = Measured(plan=plan, trained=trained, names=job.names, rows=rows)
            with unfinished.open("a") as lines:
                lines.write(one.model_dump_json() + "\n")
        measured.append(one)
    evidence = Evidence(
        piece=piece.name,
        plan=plan,
        rows=(*(row for one in measured for row in one.rows), *piece.measure_untrained(plan)),
        runs=tuple(one.trained for one in measured),
        provenance=provenance(),
    )
    write_atomically(file, to_json(evidence))
    unfinished.unlink(missing_ok=True)
    piece.draw(evidence, file.with_suffix(".png"))
    return evidence


class Measured(Record):
    """What one run of a reproduction showed."""

    plan: Plan
    trained: Trained
    names: Row
    rows: tuple[Row, ...]

    def is_of(self, job: Job) -> bool:
        return (self.trained.run, self.names) == (job.config.run_name, job.names)


def _of_fewer_tasks(file: Path, there: Evidence, plan: Plan, jobs: Sequence[Job]) -> list[Measured]:
    """What is there of some tasks, to which more are added now."""
    if not set(there.plan.tasks) < set(plan.tasks):
        _keep_other_results(file, there.plan, plan)
    _keep_other_results(file, there.plan, plan.model_copy(update={"tasks": there.plan.tasks}))
    trained = {one.run: one for one in there.runs}
    return [
        Measured(
            plan=plan,
            trained=trained[job.config.run_name],
            names=job.names,
            rows=tuple(select(there.rows, task=job.config.task, seed=job.config.seed, **job.names)),
        )
        for job in jobs
        if job.config.run_name in trained
    ]


def _read_unfinished(file: Path, plan: Plan) -> list[Measured]:
    """What an interrupted reproduction had measured; a line that a kill has torn is cut off."""
    if not file.exists():
        return []
    lines = file.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        write_atomically(file, "".join(lines[:-1]).encode())
        lines.pop()
    try:
        before = [Measured.model_validate_json(line) for line in lines]
    except ValidationError:
        raise EvidenceError(f"{file} is damaged: delete it to measure anew") from None
    for one in before:
        _keep_other_results(file, one.plan, plan)
    return before


def to_json(evidence: Evidence) -> bytes:
    """A line for each row, so that a change of results can be read."""
    content = evidence.model_dump(mode="json")
    rows = ",\n".join(json.dumps(row) for row in content.pop("rows"))
    head = json.dumps(content, indent=1).removesuffix("\n}")
    return f'{head},\n "rows": [\n{rows}\n]\n}}\n'.encode()


def _keep_other_results(file: Path, there: Plan, plan: Plan) -> None:
    """Before hours of work: results of other tasks or seeds are not written over."""
    if (set(there.tasks), there.seeds) != (set(plan.tasks), plan.seeds):
        what = f"tasks {' '.join(there.tasks)}, seeds {there.seeds or 'by default'}"
        raise ValueError(f"{file} holds results of {what}: choose another --out, or delete it first")


def train_missing(job: Job, runs: Path, which: str) -> tuple[Model, Trained]:
    """The trained model of a job: as it is if it was finished, else trained to the end."""
    config = job.config
    run = Run(runs / config.run_name)
    if not run.weights_file.exists():
        with Bar(f"training {which} {config.run_name}", config.train.updates) as bar:
            train(config, run.path, resume=True, watch=lambda update, loss, accuracy: bar.show(update))
    model, _ = load_model(run.path)
    described = run.description()
    share, share_of_examples = published_shares(config)
    return model, Trained(
        run=config.run_name,
        seed=config.seed,
        updates=config.train.updates,
        share=share,
        share_of_examples=share_of_examples,
        batch=config.data.batch,
        parameters=model.num_parameters,
        seconds=run.seconds,
        code=described["code"]["commit"],
        threads=described["machine"]["threads"],
    )
