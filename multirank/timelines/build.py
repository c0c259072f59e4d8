"""Panels from runs, traces and replays.

A rank waits from the moment when it begins to wait for an operation until that is complete. A
message's arrow begins when it was sent (in modelled time: when it left) and ends when its receive
was complete.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from ..modelling.activity import Request
from ..modelling.matching import Matching, ReplayError
from ..modelling.replay import Replay
from ..recording.trace import Mark, Operation, Trace, describe_operation, where
from ..result import Run
from .panel import PART, Arrow, Bar, Kind, Panel, Point
from .words import clean, duration, nbytes_text

MOST_OPERATIONS, MOST_MARKS = 50_000, 20_000  # that a panel shows: the last ones
MOST_RANKS = 64
_BEYOND = 0.2  # of the time recorded: so much longer is drawn what never ends
_STORY = 6000  # characters
_KINDS: dict[str, Kind] = {"send": "send", "recv": "receive"}


def from_run(run: Run, title: str) -> Panel:
    """A run's panel, in real time; it says how the ranks ended that did not finish."""
    found = run.verdict
    stuck = found.ranks if found is not None and found.kind == "deadlock" else ()
    panel = _Recorded(run.trace, run.world_size, frozenset(stuck)).panel(title)
    if run.ok:
        return panel
    endings = {rank.rank: _ending(run, rank.rank) for rank in run.ranks[: panel.ranks]}
    return replace(panel, endings=endings, story=_cut(run.story))


def from_trace(trace: Trace, title: str) -> Panel:
    """A trace's panel, in real time; what was not seen complete never ends in it."""
    ranks = {operation.rank for operation in trace.operations}
    ranks.update(mark.rank for mark in trace.marks)
    ranks.update(rank for group in {op.group for op in trace.operations} for rank in group)
    return _Recorded(trace, max(ranks, default=0) + 1).panel(title)


def from_replay(replay: Replay, title: str) -> Panel:
    """A replay's panel, in modelled time."""
    return _Modelled(replay).panel(title)


def _ending(run: Run, rank: int) -> str:
    one = run.ranks[rank]
    if run.verdict is not None and rank in run.verdict.ranks:
        return "blocked for ever" if run.verdict.kind == "deadlock" else "does not fit"
    return clean(one.exception.type, 18) if one.exception is not None else str(one.ending or "")


def _cut(story: str) -> str:
    shown = "\n".join(clean(line, 300) for line in story[:_STORY].splitlines())
    return shown if len(story) <= _STORY else f"{shown}\n…"


class _Recorded:
    """What a trace says, in its own times.

    Args:
        stuck: the ranks that can never go on.
    """

    modelled = False

    def __init__(self, trace: Trace, ranks: int, stuck: frozenset[int] = frozenset()) -> None:
        self._trace = trace
        self._ranks = min(ranks, MOST_RANKS)
        self._of = ranks
        self._stuck = stuck
        self._all = sorted(filter(self._shown, trace.operations), key=attrgetter("issued"))
        self._operations = self._all[-MOST_OPERATIONS:]
        marks = sorted(filter(self._shown, trace.marks), key=attrgetter("time"))
        self._marks = marks[-MOST_MARKS:]
        moments = [moment for one in self._operations for moment in _moments(one)]
        moments += [mark.time for mark in self._marks]
        self._begin, self._end = min(moments, default=0.0), max(moments, default=0.0)
        if any(_ended(one) is None for one in self._operations):
            self._end += _BEYOND * (self._end - self._begin) or 1e-3

    def panel(self, title: str) -> Panel:
        """All of it."""
        bars = {id(operation): self._bar(operation) for operation in self._operations}
        return Panel(
            clean(title, 120),
            self._ranks,
            self.modelled,
            self._end - self._begin,
            [*bars.values(), *self._waits(), *self._computes(), *self._spans()],
            list(self._arrows(bars)),
            [Point(mark.rank, self._since(mark.time), told) for mark, told in self._told_marks()],
            notes=list(self._notes()),
        )

    def _shown(self, one: Operation | Mark) -> bool:
        return one.rank < self._ranks

    def _since(self, moment: float) -> float:
        return moment - self._begin

    def _times(self, start: float, end: float | None) -> tuple[float, float]:
        """Of something, from its start to its end, where it has one: since the panel's start."""
        return self._since(start), self._since(self._end if end is None else max(start, end))

    # --- What was communicated ---

    def _bar(self, operation: Operation) -> Bar:
        never, ended = operation.completed is None, _ended(operation)
        start, end = self._times(operation.issued, ended)
        kind, peer = _KINDS.get(operation.name, "collective"), operation.peer
        name = clean(f"{operation.variant}_{operation.name}".lstrip("_"), 30)
        if operation.name == "new_group":  # which one it is, is what ranks mostly disagree on
            name += clean(f" of {', '.join(map(str, operation.group))}", 30)
        elif kind != "collective":
            name += f" {'→' if kind == 'send' else '←'} {'any' if peer is None else peer}"
        size = nbytes_text(operation.nbytes) if operation.nbytes else ""
        label = [name, size, clean(where(operation), 40) if operation.file else ""]
        detail = [
            clean(operation.dtype or "", 20),
            f"tag {operation.tag}"[:30] if operation.tag else "",
            self._group(operation),
            f"root {peer}" if kind == "collective" and peer is not None else "",
            self._when(start, end, never),
            "handle dropped without wait()" if never and ended is not None else "",
        ]
        told = PART.join(filter(None, label)), ", ".join(filter(None, detail))
        return Bar(operation.rank, kind, start, end, *told, operation.nbytes, never)

    def _group(self, operation: Operation) -> str:
        if len(operation.group) == self._of:
            return ""
        return clean(f"group {', '.join(map(str, operation.group[:16]))}", 50)

    def _when(self, start: float, end: float, never: bool) -> str:
        at = f"at {duration(start)}"
        return f"{at}, not seen to end" if never else f"{duration(end - start)}, {at}"

    def _waits(self) -> Iterator[Bar]:
        """What each rank waited for; where several threads did, each moment counts once."""
        until: dict[int, float] = defaultdict(float)
        waited = [one for one in self._operations if one.waited is not None]
        for operation in sorted(waited, key=attrgetter("waited")):
            never = operation.completed is None
            start, end = self._times(operation.waited or 0.0, operation.completed)
            start = max(start, until[operation.rank])
            if start >= end:
                continue
            until[operation.rank] = end
            how = "waits" + (" for ever" if never and operation.rank in self._stuck else "")
            what = clean(describe_operation(operation), 80)
            when = self._when(start, end, never)
            at_once = operation.waited == operation.issued  # its own bar says the same
            yield Bar(
                operation.rank,
                "wait",
                start,
                end,
                how if at_once else f"{how}{PART}{what}",
                f"{what}, {when}" if at_once else when,
                open=never,
            )

    def _arrows(self, bars: dict[int, Bar]) -> Iterator[Arrow]:
        """The messages that arrived."""
        matching = Matching(self._of)
        for number, operation in enumerate(self._all):
            if operation.name not in ("send", "recv"):
                continue
            try:
                pair = matching.add(Request(operation, operation.rank, number, number, None))
            except ReplayError:  # nonsense, such as a partner outside the group
                continue
            if not pair or pair[1].operation.completed is None:
                continue
            sent, received = (bars.get(id(request.operation)) for request in pair)
            if sent is None or received is None:  # before what is shown
                continue
            start, end = self._transfer(pair[0].operation, pair[1].operation)
            told = f"{nbytes_text(sent.nbytes)} from rank {sent.rank} to rank {received.rank}"
            yield Arrow(sent, received, start, end, f"{told}, {self._when(start, end, False)}")

    def _transfer(self, send: Operation, receive: Operation) -> tuple[float, float]:
        """When a message left and arrived."""
        return self._times(send.issued, receive.completed)

    # --- What was declared ---

    def _computes(self) -> Iterable[Bar]:
        return ()  # declared, not done: a point tells of it

    def _spans(self) -> Iterator[Bar]:
        begun: dict[int, list[Mark]] = defaultdict(list)
        for mark in self._marks:
            if mark.kind == "begin":
                begun[mark.rank].append(mark)
            elif mark.kind == "end" and begun[mark.rank]:
                yield self._span(begun[mark.rank].pop(), mark.time)
        for left in begun.values():
            yield from (self._span(mark, None) for mark in left)

    def _span(self, mark: Mark, end: float | None) -> Bar:
        start, until = self._times(mark.time, end)
        told = clean(mark.label), self._when(start, until, end is None)
        return Bar(mark.rank, "span", start, until, *told, open=end is None)

    def _told_marks(self) -> Iterator[tuple[Mark, str]]:
        for mark in self._marks:
            if mark.kind == "mark":
                yield mark, clean(mark.label)
            elif mark.kind == "compute" and not self.modelled:
                yield mark, f"{clean(mark.label)}: {duration(mark.seconds)} declared"

    def _notes(self) -> Iterator[str]:
        if self._of > self._ranks:
            yield f"The first {self._ranks} of {self._of} ranks are shown."
        shown, of = len(self._operations), len(self._all)
        if shown < of:
            yield f"The last {shown} of {of} operations are shown."
        if self._trace.truncated or self._trace.damaged:
            yield "The record is not complete: some rank's end is missing."


class _Modelled(_Recorded):
    """What a replay says, in virtual time."""

    modelled = True

    def __init__(self, replay: Replay) -> None:
        super().__init__(replay.trace, len(replay.ranks))
        self._replay = replay
        self._begin, self._end = 0.0, replay.makespan
        self._starts: dict[tuple[tuple[int, ...], float], deque[float]] = defaultdict(deque)
        for activity in replay.activities:
            if activity.name == "message":
                self._starts[activity.ranks, activity.end].append(activity.start)

    def _transfer(self, send: Operation, receive: Operation) -> tuple[float, float]:
        start, end = super()._transfer(send, receive)
        starts = self._starts[(send.rank, receive.rank), end]
        return (starts.popleft() if starts else start), end

    def _computes(self) -> Iterator[Bar]:
        for activity in self._replay.activities:
            if activity.name == "compute" and activity.rank < self._ranks:
                times = activity.start, activity.end
                told = clean(activity.label), self._when(*times, False)
                yield Bar(activity.rank, "compute", *times, *told)


def _ended(operation: Operation) -> float | None:
    """When it was complete, or given up by dropping its handle; None: never."""
    given_up = operation.dropped if operation.waited is None else None
    return given_up if operation.completed is None else operation.completed


def _moments(operation: Operation) -> Iterator[float]:
    for moment in (operation.issued, operation.waited, operation.completed, operation.dropped):
        if moment is not None:
            yield moment
