"""Eleven ways to hang, each run live and explained: `python -m multirank.gallery [NAME ...]`.

Worth reading before you write a line: nearly every hang of a distributed program is one of these.
With `--timeline DIR`, each is drawn as well.
"""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from .proving.verdict import wrap
from .result import Run
from .timelines.timeline import timeline
from .world import run


def everybody_receives_first() -> None:
    """Each rank waits for its left neighbour, and nobody has sent yet."""
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, theirs = torch.ones(4), torch.empty(4)
    dist.recv(theirs, (rank - 1) % n)
    dist.send(mine, (rank + 1) % n)


def everybody_sends_first() -> None:
    """A blocking send waits until its message is received, and nobody receives yet."""
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, theirs = torch.ones(4), torch.empty(4)
    dist.send(mine, (rank + 1) % n)
    dist.recv(theirs, (rank - 1) % n)


def only_rank_0_logs() -> None:
    """A collective inside `if rank == 0`: the other ranks never come."""
    loss = torch.ones(1)
    if dist.get_rank() == 0:
        dist.all_reduce(loss)


def different_order() -> None:
    """Two collectives, called in one order on rank 0 and in the other order elsewhere."""
    loss = torch.ones(1)
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        dist.barrier()
    else:
        dist.barrier()
        dist.all_reduce(loss)


def different_sizes() -> None:
    """The last rank's batch is smaller, and so is its tensor."""
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(8 if rank < n - 1 else 5))


def uneven_batches() -> None:
    """Rank 1 has one batch fewer, and leaves the loop while the others reduce once more."""
    batches = 2 if dist.get_rank() == 1 else 3
    for _ in range(batches):
        dist.all_reduce(torch.ones(4))


def one_message_too_many() -> None:
    """The receiver's loop is one longer than the sender's."""
    if dist.get_rank() == 0:
        for _ in range(2):
            dist.send(torch.ones(4), 1)
    elif dist.get_rank() == 1:
        for _ in range(3):
            dist.recv(torch.empty(4), 0)


def different_tags() -> None:
    """The message is there, but the receiver asks for another tag."""
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), 1, tag=1)
    elif dist.get_rank() == 1:
        dist.recv(torch.empty(4), 0, tag=2)


def dropped_handle() -> None:
    """isend's handle is thrown away, and the message with it."""
    if dist.get_rank() == 0:
        dist.isend(torch.ones(4), 1)
    elif dist.get_rank() == 1:
        time.sleep(0.05)
        dist.recv(torch.empty(4), 0)


def groups_in_different_order() -> None:
    """All ranks must make all groups in the same order; rank 1 makes them the other way round."""
    groups = [[0, 1], [1, 2]]
    if dist.get_rank() == 1:
        groups.reverse()
    for ranks in groups:
        dist.new_group(ranks)


def pipeline_with_blocking_sends() -> None:
    """Textbook 1F1B: a stage sends an output on, while the next one sends a gradient back."""
    rank, last, x = dist.get_rank(), dist.get_world_size() - 1, torch.ones(4)
    warmup = last - rank
    for action in "F" * warmup + "FB" * (4 - warmup) + "B" * warmup:
        source, target = (rank - 1, rank + 1) if action == "F" else (rank + 1, rank - 1)
        if 0 <= source <= last:
            dist.recv(x, source)
        if 0 <= target <= last:
            dist.send(x, target)


GALLERY: tuple[Callable[[], None], ...] = (
    everybody_receives_first,
    everybody_sends_first,
    only_rank_0_logs,
    different_order,
    different_sizes,
    uneven_batches,
    one_message_too_many,
    different_tags,
    dropped_handle,
    groups_in_different_order,
    pipeline_with_blocking_sends,
)
WORLD_SIZE = 3


def show(function: Callable[[], None]) -> Run:
    """Runs one of them, and prints its code and what multirank says of it."""
    print(f"\n{wrap(f'{_title(function)}. {function.__doc__}')}\n")
    lines, first = inspect.getsourcelines(function)
    for number, line in enumerate(lines, first):
        if number != first + 1:  # its docstring
            print(f"  {number:4} {line}", end="")
    ended = run(function, WORLD_SIZE, timeout=10, check=False)
    print(f"\nAfter {ended.seconds:.2f} s, on {WORLD_SIZE} ranks:\n\n{ended.story}")
    return ended


def _title(function: Callable[[], None]) -> str:
    return function.__name__.replace("_", " ").capitalize()


def main(arguments: Sequence[str] | None = None) -> None:
    """Shows all of them, or those that are named."""
    names = {function.__name__: function for function in GALLERY}
    parser = argparse.ArgumentParser(
        prog="python -m multirank.gallery",
        description=(__doc__ or "").partition(":")[0] + ".",
        epilog=f"The names: {', '.join(names)}.",
    )
    parser.add_argument("name", nargs="*", help="which of them to show (default: all)")
    parser.add_argument(
        "--timeline", type=Path, metavar="DIR", help="draw each, as NAME.html in this folder"
    )
    options = parser.parse_args(arguments)
    for name in options.name:
        if name not in names:
            parser.error(f"{name!r} is not in the gallery; there are: {', '.join(names)}")
    if options.timeline is not None:
        try:
            options.timeline.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"--timeline: {error}")
    for name in options.name or names:
        ended = show(names[name])
        if options.timeline is not None:
            file = options.timeline / f"{name}.html"
            timeline(ended, titles=[_title(names[name])]).save(file)
            print(f"\nDrawn in {file}")


if __name__ == "__main__":
    main()
