"""How well `autograder batch` uses a machine's cores: a class on all of them, and on one core.

The reference is graded a few times on as many cores as there are, so many at once, and then once
pinned to one core, in turns, so that noise hits both alike. Ideal would be the rate of one core
times the cores. Prints a line for each round; ends with one line of JSON.

    python -m benchmarks.throughput [--rounds 2] [--each 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console

from autograder.batch import conduct
from autograder.batch.commands import Options, on_this_machine, run, settings_of
from autograder.batch.store import TIMES, Store
from autograder.manifest import load
from autograder.paths import REFERENCE, module_files


def per_submission(cores: set[int], count: int) -> tuple[float, float]:
    """Seconds of a class by its size, and the part of the gradings' time that they were alone."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        with tempfile.TemporaryDirectory() as folder:
            top = Path(folder)
            for number in range(count):
                (top / "class" / f"student-{number}").mkdir(parents=True)
                for name, content in module_files(REFERENCE).items():
                    (top / "class" / f"student-{number}" / name).write_bytes(content)
            asked = conduct.Asked()
            options = Options(top / "class", top / "out", asked, seed=1, at_once=len(cores))
            settings = settings_of(options, load(REFERENCE))
            started = time.monotonic()
            result = run(Console(quiet=True), options, settings, on_this_machine)
            seconds = time.monotonic() - started
            assert result.code == 0, "the class was not graded: try `autograder batch` by hand"
            store = Store(top / "out")
            times = [
                json.loads((place.path / TIMES).read_bytes())
                for grading in store.gradings.iterdir()
                for place in store.of(grading.name)
            ]
        alone = sum(one["measured"] for one in times) / sum(one["seconds"] for one in times)
        return seconds / count, alone
    finally:
        os.sched_setaffinity(0, allowed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--each", type=int, default=2, help="gradings on each core in a round")
    asked = parser.parse_args()
    cores = os.sched_getaffinity(0)
    ratios = []
    for _ in range(asked.rounds):
        together, alone = per_submission(cores, asked.each * len(cores))
        pinned, _ = per_submission({min(cores)}, 1)
        ratios.append(pinned / (together * len(cores)))
        print(
            f"{together:.1f} s a submission on {len(cores)} cores, {alone:.0%} of a grading's time "
            f"alone; {pinned:.1f} s on one: {ratios[-1]:.2f} of the ideal",
            flush=True,
        )
    ratio = round(statistics.median(ratios), 3)
    print(json.dumps({"benchmark": "throughput", "cores": len(cores), "of_ideal": ratio}))


if __name__ == "__main__":
    main()
