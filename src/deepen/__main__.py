"""The command line: one verb per station, each in a file of verbs/.

Flags are made from the config records with tyro. Bad input ends with exit code 2 and one line on
standard error; whatever a program may read goes to standard output.
"""

import sys
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from deepen.bench import BenchError
from deepen.config import explain
from deepen.console import fail
from deepen.train import TrainingError
from deepen.verbs.audit import audit_verb
from deepen.verbs.bench import bench_verb
from deepen.verbs.grid import grid_verb
from deepen.verbs.report import report_verb
from deepen.verbs.reproduce import reproduce_verb
from deepen.verbs.serve import serve_verb
from deepen.verbs.solve import solve_verb
from deepen.verbs.train import train_verb

VERBS: dict[str, tuple[Callable[[Sequence[str]], None], str]] = {
    "train": (train_verb, "train a model from a preset: deepen train graph --preset frontier"),
    "grid": (grid_verb, "measure and draw where it solves what: deepen grid RUN"),
    "audit": (audit_verb, "measure what shortcuts score on a task: deepen audit family"),
    "reproduce": (reproduce_verb, "a table or figure of the paper, from nothing: deepen reproduce baselines"),
    "report": (report_verb, "fill the pages from stored results: deepen report"),
    "bench": (bench_verb, "measure speed against the plain way: deepen bench infer"),
    "serve": (serve_verb, "questions over HTTP, and a page to watch a model think: deepen serve"),
    "solve": (solve_verb, "ask a model a question: deepen solve graph '{...}' --steps 12"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: deepen VERB ...      (deepen VERB --help tells the rest)\n")
        for verb, (_, about) in VERBS.items():
            print(f"  {verb:10} {about}")
        return
    verb = arguments[0]
    if verb not in VERBS:
        fail(f"unknown verb '{verb}' (known: {', '.join(VERBS)})")
    try:
        VERBS[verb][0](arguments[1:])
    except (TrainingError, BenchError) as error:
        fail(str(error), code=1)
    except ValidationError as error:
        fail(explain(error))
    except (ValueError, OSError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", code=130)


if __name__ == "__main__":
    main()
