"""How long a class takes: 1,000 submissions on 1 to 64 nodes, simulated from measured gradings.

Gradings are measured here first, one at a time on one core: the reference, the stubs, and one that
hangs; or those of a batch's folder are taken. A class is drawn from them, and graded in a
simulation of what `autograder batch --executor slurm` does: a node takes as many jobs as get the
cores that each asks for, a job has to start and to import, the checks of a node run side by side,
and what is measured in seconds has its node to itself. Prints a table of the makespan against the
ideal, and what is lost to what, and one of larger and smaller nodes; ends with one line of JSON. A
job has more cores than the one that was measured on, and may be faster than this says.

    python -m benchmarks.class [--from OUT] [--submissions 1000] [--cores 8]
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import statistics
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autograder.batch import conduct
from autograder.batch.commands import Options, on_this_machine, run
from autograder.batch.needs import needs_of
from autograder.batch.store import TIMES, Place, Status, Store
from autograder.digest import grader_digest
from autograder.inputs import known_secret
from autograder.manifest import Manifest, load
from autograder.paths import ASSIGNMENT, REFERENCE, module_files

NODES = (1, 2, 4, 8, 16, 32, 64)
SLOTS = (1, 2, 4, 8, 16)
START = 6.0  # seconds of a job before its first check: Python, torch, the zygote, cold
STARTS_PER_SECOND = 10.0  # that Slurm manages, with a queue full of array jobs
NOTICED = 2.0  # seconds from a job's end to the next one's start in its place
GOOD = 0.9  # of what one node reaches of its ideal: until there it scales
MEASURED = ("measure/agrees_with_the_graders_clock", "all_reduce/traffic")
MIX = {"reference": 0.55, "stub": 0.05, "half": 0.3, "hangs": 0.1}
_HANGS = "\n\ndef broadcast(tensor, src, group=None):\n    while True:\n        pass\n"


@dataclass(frozen=True)
class Grading:
    """The checks of one grading, in order: seconds each, and whether it has the node to itself."""

    checks: tuple[tuple[float, bool], ...]

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.checks)


# --- Measuring ------------------------------------------------------------------------------------


def measured(manifest: Manifest) -> dict[str, Grading]:
    """Grades three kinds of submission here, one after the other, on one core."""
    kinds = {"reference": module_files(REFERENCE), "stub": module_files(ASSIGNMENT)}
    hangs = dict(kinds["reference"])
    hangs["collectives.py"] += _HANGS.encode()
    kinds["hangs"] = hangs
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with tempfile.TemporaryDirectory() as folder:
            top = Path(folder)
            for name, files in kinds.items():
                (top / "class" / name).mkdir(parents=True)
                for file, content in files.items():
                    (top / "class" / name / file).write_bytes(content)
            options = Options(top / "class", top / "out", conduct.Asked(), seed=1, at_once=1)
            needs = needs_of(manifest.problems, gpus=0)
            settings = conduct.Settings(manifest, grader_digest(), known_secret(1), needs, seed=1)
            run(Console(quiet=True), options, settings, on_this_machine)
            return recorded(top / "out")
    finally:
        os.sched_setaffinity(0, allowed)


def recorded(out: Path) -> dict[str, Grading]:
    """The gradings in a batch's folder, by submission."""
    store = Store(out)
    found = {}
    for folder in sorted(store.gradings.iterdir()):
        done = [place for place in store.of(folder.name) if place.state().status is Status.DONE]
        if done:
            found[folder.name] = _grading(done[-1])
    return found


def _grading(place: Place) -> Grading:
    """Of what is measured only a part of the check has the machine to itself."""
    checks = json.loads(place.record.read_bytes())["checks"]
    alone = json.loads((place.path / TIMES).read_bytes())["measured"]
    total = sum(one["seconds"] or 0.0 for one in checks if one["id"] in MEASURED)
    part = min(1.0, alone / total) if total else 0.0
    pieces: list[tuple[float, bool]] = []
    for one in checks:
        seconds = one["seconds"] or 0.0
        if one["id"] in MEASURED:
            pieces += [(seconds * (1 - part), False), (seconds * part, True)]
        else:
            pieces.append((seconds, False))
    return Grading(tuple(piece for piece in pieces if piece[0] > 0))


def drawn(kinds: dict[str, Grading], count: int, seed: int = 1) -> list[Grading]:
    """A class: whole gradings of the kinds in `MIX`; "half" is done up to somewhere.

    Kinds that are not there are left out; of a batch's own folder everybody is as likely.
    """
    rng = random.Random(seed)
    if not set(kinds) & set(MIX):
        return rng.choices(list(kinds.values()), k=count)
    known = {kind: part for kind, part in MIX.items() if kind in kinds or kind == "half"}
    found = []
    for kind in rng.choices(list(known), list(known.values()), k=count):
        if kind == "half":
            checks = kinds["reference"].checks
            done = rng.randint(len(checks) // 5, len(checks))
            found.append(Grading(checks[:done]))
        else:
            found.append(kinds[kind])
    return found


def slots_of(manifest: Manifest, cores: int) -> int:
    """How many gradings Slurm runs at once on a node with so many cores; 0: it has too few."""
    return cores // needs_of(manifest.problems, gpus=0).cpus


# --- Simulating -----------------------------------------------------------------------------------


@dataclass
class _Node:
    """One machine: who is at a check, who is alone, and who stands at the gate, in order."""

    running: int = 0
    alone: bool = False
    gate: deque[_Slot] = field(default_factory=deque)


@dataclass
class _Slot:
    """A place for one grading at a time."""

    node: _Node
    checks: deque[tuple[float, bool]] = field(default_factory=deque)
    came: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a simulation came to, in seconds; waited, started and idle are sums over all slots."""

    makespan: float
    work: float
    waited: float
    started: float
    idle: float
    slots: int
    gradings: int

    @property
    def ideal(self) -> float:
        """If every slot did nothing but checks, all the time."""
        return self.work / self.slots

    @property
    def efficiency(self) -> float:
        return self.ideal / self.makespan


def simulate(
    gradings: Sequence[Grading],
    nodes: int,
    slots: int,
    *,
    start: float = START,
    starts_per_second: float = STARTS_PER_SECOND,
    noticed: float = NOTICED,
) -> Outcome:
    """Grades a class on so many nodes. Events in order of time; nothing is random.

    slots: gradings at once on each node.
    """
    simulation = _Simulation(gradings, start, starts_per_second, noticed)
    machines = [_Node() for _ in range(nodes)]
    places = [_Slot(node) for node in machines for _ in range(slots)]
    for place in places:
        simulation.next_job(0.0, place)
    makespan = simulation.go()
    work = sum(grading.seconds for grading in gradings)
    busy = work + simulation.waited + simulation.starting
    idle = makespan * len(places) - busy
    return Outcome(
        makespan, work, simulation.waited, simulation.starting, idle, len(places), len(gradings)
    )


class _Simulation:
    def __init__(
        self, gradings: Sequence[Grading], start: float, per_second: float, noticed: float
    ) -> None:
        self._left = deque(gradings)
        self._start, self._between, self._noticed = start, 1 / per_second, noticed
        self._next_start = 0.0
        self._events: list[tuple[float, int, _Slot]] = []
        self._order = 0
        self.waited = self.starting = 0.0

    def next_job(self, now: float, slot: _Slot) -> None:
        """Slurm starts one job after the other, and not at once."""
        if not self._left:
            return
        begins = max(now, self._next_start)
        self._next_start = begins + self._between
        slot.checks = deque(self._left.popleft().checks)
        self.starting += self._start
        self._at(begins + self._start, slot)

    def go(self) -> float:
        """Until nothing is left; when that is."""
        now = 0.0
        running: dict[int, bool] = {}
        while self._events:
            now, _, slot = heapq.heappop(self._events)
            if (was_alone := running.pop(id(slot), None)) is not None:
                slot.node.running -= 1
                slot.node.alone = slot.node.alone and not was_alone
            if slot.checks:
                slot.came = now
                slot.node.gate.append(slot)
            else:
                self.next_job(now + self._noticed, slot)
            self._let_in(now, slot.node, running)
        return now

    def _let_in(self, now: float, node: _Node, running: dict[int, bool]) -> None:
        """From the gate, in order: nobody passes one who waits to be alone."""
        while node.gate and not node.alone:
            slot = node.gate[0]
            seconds, alone = slot.checks[0]
            if alone and node.running:
                return
            node.gate.popleft()
            slot.checks.popleft()
            node.running += 1
            node.alone = alone
            running[id(slot)] = alone
            self.waited += now - slot.came
            self._at(now + seconds, slot)

    def _at(self, time: float, slot: _Slot) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, slot))


# --- Telling --------------------------------------------------------------------------------------


def show(outcomes: dict[int, Outcome]) -> None:
    """The table, and where it stops scaling."""
    table = Table("nodes", "slots", "makespan", "ideal", "of ideal", "turns", "starting", "idle")
    for column in table.columns:
        column.justify = "right"
    for nodes, one in outcomes.items():
        total = one.makespan * one.slots
        table.add_row(
            *(str(nodes), str(one.slots), _clock(one.makespan), _clock(one.ideal)),
            *(f"{part:.0%}" for part in (one.efficiency, *_losses(one, total))),
        )
    Console().print(table)
    one_node = outcomes[min(outcomes)]
    total = one_node.makespan * one_node.slots
    told = ", ".join(f"{name} {part:.0%}" for name, part in _named(one_node, total).items())
    print(f"One node reaches {one_node.efficiency:.0%} of the ideal; the rest: {told}.")
    stops = [n for n, one in outcomes.items() if one.efficiency < GOOD * one_node.efficiency]
    if not stops:
        print("More nodes are as good as one.")
        return
    one = outcomes[stops[0]]
    now, then = _named(one, one.makespan * one.slots), _named(one_node, total)
    most = max(now, key=lambda name: now[name] - then[name])
    print(f"It scales to fewer than {stops[0]} nodes: from there on more is lost to {most}.")


def show_slots(outcomes: dict[int, Outcome]) -> None:
    """What more gradings at once on a node are good for, while each has to measure alone."""
    table = Table("slots of one node", "gradings an hour", "of ideal", "turns")
    for slots, one in outcomes.items():
        hourly = 3600 * one.gradings / one.makespan
        turns = one.waited / (one.makespan * one.slots)
        table.add_row(str(slots), f"{hourly:.0f}", f"{one.efficiency:.0%}", f"{turns:.0%}")
    Console().print(table)


def _named(one: Outcome, total: float) -> dict[str, float]:
    names = ("waiting for turns", "starting jobs", "idle slots")
    return dict(zip(names, _losses(one, total), strict=True))


def _losses(one: Outcome, total: float) -> tuple[float, float, float]:
    return one.waited / total, one.started / total, one.idle / total


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def main() -> None:
    """Measures, simulates, and prints the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="out", type=Path, help="a batch's folder, instead")
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=8, help="of a node")
    asked = parser.parse_args()
    manifest = load(REFERENCE)
    slots_a_node = slots_of(manifest, asked.cores)
    if not slots_a_node:
        cpus = needs_of(manifest.problems, gpus=0).cpus
        parser.error(f"--cores {asked.cores}: a grading asks Slurm for {cpus}; name that many")
    kinds = recorded(asked.out) if asked.out else measured(manifest)
    gradings = drawn(kinds, asked.submissions)
    for name, grading in list(kinds.items())[:10]:
        alone = sum(seconds for seconds, alone in grading.checks if alone)
        print(f"{name}: {grading.seconds:.1f} s, {alone:.1f} s of them alone")
    print(f"Slurm, nodes of {asked.cores} cores; gradings at once on each: {slots_a_node}.")
    outcomes = {nodes: simulate(gradings, nodes, slots_a_node) for nodes in NODES}
    show(outcomes)
    by_slots = {slots: simulate(gradings[: 25 * slots], 1, slots) for slots in SLOTS}
    show_slots(by_slots)
    mean = statistics.mean(grading.seconds for grading in gradings)
    rows = {
        str(nodes): {
            "makespan": round(one.makespan, 1),
            "ideal": round(one.ideal, 1),
            "efficiency": round(one.efficiency, 3),
        }
        for nodes, one in outcomes.items()
    }
    by_slot = {str(slots): round(one.efficiency, 3) for slots, one in by_slots.items()}
    told = {
        "submissions": asked.submissions,
        "cores": asked.cores,
        "slots_a_node": slots_a_node,
        "mean_seconds": round(mean, 1),
    }
    print(json.dumps({"benchmark": "class", **told, "nodes": rows, "slots": by_slot}))


if __name__ == "__main__":
    main()
