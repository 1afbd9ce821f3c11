"""Piece + plan -> evidence: train what is missing, measure, write down, draw."""

import json
from pathlib import Path

from deepen.evidence.piece import Evidence, Job, Piece, Plan, Row, Trained, published_shares, read_evidence
from deepen.model import Model
from deepen.progress import Bar
from deepen.runs import Run, load_model, provenance, write_atomically
from deepen.train import train


def reproduce(piece: Piece, plan: Plan, runs: Path, out: Path) -> Evidence:
    """Leave the rows in OUT/<budget>.json and the picture beside them; finished runs are used again."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{plan.stem}.json"
    _keep_other_results(file, plan)
    jobs = piece.jobs(plan)
    rows: list[Row] = []
    trained: list[Trained] = []
    for number, job in enumerate(jobs, start=1):
        model, about = train_missing(job, runs, f"{number}/{len(jobs)}")
        trained.append(about)
        own = {"task": job.config.task, "seed": job.config.seed, **job.names}
        rows += [{**own, **row} for row in piece.measure(model, job.config, plan)]
    rows += piece.measure_untrained(plan)
    evidence = Evidence(
        piece=piece.name, plan=plan, rows=tuple(rows), runs=tuple(trained), provenance=provenance()
    )
    write_atomically(file, to_json(evidence))
    piece.draw(evidence, file.with_suffix(".png"))
    return evidence


def to_json(evidence: Evidence) -> bytes:
    """A line for each row, so that a change of results can be read."""
    content = evidence.model_dump(mode="json")
    rows = ",\n".join(json.dumps(row) for row in content.pop("rows"))
    head = json.dumps(content, indent=1).removesuffix("\n}")
    return f'{head},\n "rows": [\n{rows}\n]\n}}\n'.encode()


def _keep_other_results(file: Path, plan: Plan) -> None:
    """Before hours of work: results of other tasks or seeds are not written over."""
    if file.exists():
        there = read_evidence(file).plan
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
