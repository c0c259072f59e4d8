"""`timeline`: runs, traces and replays as one picture, and what it can be written as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..modelling.replay import Replay
from ..recording.trace import Trace
from ..result import Run
from .build import from_replay, from_run, from_trace
from .page import page
from .panel import Panel
from .perfetto import trace_events
from .svg import Drawing, draw

MOST_BYTES = 1_000_000  # of an SVG or HTML file
_EACH = 100  # bytes that a thing takes at least
_TRIES = 5
SUFFIXES = (".html", ".svg", ".json")


@dataclass(frozen=True)
class Timeline:
    """A picture of one run or more; all on the same axis, so that lengths compare."""

    panels: tuple[Panel, ...]

    def html(self) -> str:
        """A page that needs no network: the picture, and what failed runs say of themselves."""
        return self._within(lambda drawing: page(self.panels, drawing), MOST_BYTES)

    def svg(self, most_bytes: int = MOST_BYTES) -> str:
        """The picture alone, of at most so many bytes; what is too much for that is drawn together.

        Raises:
            ValueError: it cannot be as small as that.
        """
        return self._within(Drawing.svg, most_bytes)

    def perfetto(self) -> str:
        """The Trace Event format (JSON), for ui.perfetto.dev."""
        return trace_events(self.panels)

    def save(self, path: str | Path) -> None:
        """Writes a file: `.html`, `.svg`, or `.json` for Perfetto.

        Raises:
            ValueError: the name ends otherwise.
            OSError: it cannot be written.
        """
        file = Path(path)
        require_suffix(file)
        write = {".html": self.html, ".svg": self.svg, ".json": self.perfetto}[file.suffix]
        file.write_text(write(), encoding="utf-8")

    def _within(self, finish: Callable[[Drawing], str], most_bytes: int) -> str:
        most = most_bytes // (_EACH * len(self.panels))
        for _ in range(_TRIES):
            text = finish(draw(self.panels, most))
            size = len(text.encode())
            if size <= most_bytes:
                return text
            most = int(0.8 * most * most_bytes / size)
        raise ValueError(f"this timeline cannot be drawn in {most_bytes} bytes")


def require_suffix(path: Path) -> None:
    """Raises ValueError for a name that does not say which kind of file it is."""
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: a timeline's name ends in .html, .svg, or .json (for ui.perfetto.dev)"
        )


def timeline(*sources: Run | Trace | Replay, titles: Sequence[str] = ()) -> Timeline:
    """A picture of runs: a lane for each rank, with all that it communicated and waited for.

    A run or a trace is shown in real time, a replay in modelled time; several are shown one below
    the other, on the same axis.

        multirank.timeline(run).save("run.html")
        multirank.timeline(naive, ring, titles=["naive", "ring"]).save("compared.html")

    Args:
        sources: at least one.
        titles: one for each; else they are numbered.

    Raises:
        ValueError: there is no source, or not a title for each.
    """
    if not sources:
        raise ValueError("timeline() needs a run, a trace or a replay")
    if titles and len(titles) != len(sources):
        raise ValueError(f"there are {len(titles)} titles for {len(sources)} runs")
    names = titles or [_name(place, len(sources)) for place in range(len(sources))]
    return Timeline(tuple(map(_panel, sources, names)))


def _name(place: int, count: int) -> str:
    return f"Run {place + 1}" if count > 1 else "Timeline"


def _panel(source: Run | Trace | Replay, title: str) -> Panel:
    match source:
        case Run():
            return from_run(source, title)
        case Replay():
            return from_replay(source, title)
        case _:
            return from_trace(source, title)
