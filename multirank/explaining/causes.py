"""The table of likely causes of wrong numbers: what a good teacher would guess from them.

A cause is a sentence, and a test that says whether the numbers of every wrong rank bear it out.
Guesses only, hence "consistent with"; where nothing fits, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import copies, places, scaling, sums
from .copies import Words
from .evidence import Evidence


@dataclass(frozen=True)
class Cause:
    """A guess.

    name: what it is called in tests and statistics.
    text: the sentence. It may name ranks, indices and counts, never a value.
    test: the words to put into it, or None where the numbers deny it.
    alone: told only where nothing before it in the table is, which then says it better.
    """

    name: str
    text: str
    test: Callable[[Evidence], Words | None]
    alone: bool = False


CAUSES: tuple[Cause, ...] = (
    Cause(
        "wrong root",
        "rank {k} is treated as the root, which is rank {root}: consistent with src or dst being "
        "ignored, or being mixed up with a place in the group",
        copies.wrong_root,
    ),
    Cause(
        "nothing for the root",
        "rank {root}, the root, received nothing, though another rank did: consistent with dst "
        "being ignored, or being mixed up with a place in the group",
        copies.nothing_for_the_root,
        alone=True,
    ),
    Cause(
        "nothing communicated",
        "each wrong rank holds just what it put in: consistent with nothing having been "
        "communicated to it",
        copies.nothing_communicated,
        alone=True,
    ),
    Cause(
        "left in a copy",
        "each wrong rank's result is just as before the call, although messages were received: "
        "consistent with a result that stayed in a copy of the tensor",
        copies.left_in_a_copy,
        alone=True,
    ),
    Cause(
        "left in a copy or never written",
        "each wrong rank's output is just as before the call, although messages were received: "
        "consistent with a result that stayed in a copy of the tensor, or was never written there",
        copies.left_in_a_copy_or_never_written,
        alone=True,
    ),
    Cause(
        "received left out",
        "each wrong rank holds just what it put in, although messages were received: consistent "
        "with what was received having been left out",
        copies.received_left_out,
        alone=True,
    ),
    Cause(
        "one rank's input",
        "the wrong ranks hold what rank {k} put in: consistent with a copy of rank {k}'s data",
        copies.one_ranks_input,
        alone=True,
    ),
    Cause(
        "stale",
        "the wrong elements are what {when} gave there: consistent with a buffer or a result that "
        "was kept from one call to the next",
        copies.stale,
    ),
    Cause(
        "sum for mean",
        "the wrong values are {W} times too large, {W} being the number of ranks: consistent with "
        "a sum where a mean was asked for",
        scaling.sum_for_mean,
    ),
    Cause(
        "mean for sum",
        "the wrong values are {W} times too small, {W} being the number of ranks: consistent with "
        "a mean where a sum was asked for",
        scaling.mean_for_sum,
    ),
    Cause(
        "divided by all ranks",
        "the wrong values are the sum divided by {all}, where the group has {W} ranks: consistent "
        "with the number of all ranks being taken for that of the group",
        scaling.divided_by_all_ranks,
    ),
    Cause(
        "divided by two",
        "the wrong values are the sum divided by 2, where there are {W} ranks: consistent with a "
        "mean of two that was meant for all",
        scaling.divided_by_two,
    ),
    Cause(
        "divided twice",
        "the wrong values are {W} times too small, {W} being the number of ranks: consistent with "
        "a division that was done twice, as at every hop and once more at the end",
        scaling.divided_twice,
    ),
    Cause(
        "divided at every hop",
        "the wrong values are not one mean of {W} but sums divided by {d} again and again: "
        "consistent with a division at every hop, where one at the end was asked for",
        scaling.divided_at_every_hop,
    ),
    Cause(
        "reduced twice",
        "the wrong values are {W} times too large, {W} being the number of ranks: consistent with "
        "sums that were added up once more",
        scaling.reduced_twice,
    ),
    Cause(
        "another op",
        "the wrong values are those of {other}, where {op} was asked for: consistent with op being "
        "ignored",
        scaling.another_op,
    ),
    Cause(
        "integers through floats",
        "the wrong integers are off in their last digits only: consistent with integers that went "
        "through floating point, where they were rounded",
        scaling.integers_through_floats,
    ),
    Cause(
        "narrower dtype",
        "the wrong values are off as far as {dtype} rounds: consistent with numbers that went "
        "through a narrower dtype",
        scaling.sent_in_a_narrower_dtype,
        alone=True,
    ),
    Cause(
        "own contribution missing",
        "each wrong rank's own contribution is missing from its sum: consistent with adding up "
        "only what was received",
        sums.own_missing,
        alone=True,
    ),
    Cause(
        "one contribution missing",
        "rank {k}'s contribution is missing from the sum: consistent with a loop over the ranks "
        "that leaves rank {k} out",
        sums.one_missing,
        alone=True,
    ),
    Cause(
        "different contributions missing",
        "every wrong element lacks one rank's contribution, not everywhere the same rank's: "
        "consistent with one step too few, or with a chunk passed on before it was complete",
        sums.different_missing,
        alone=True,
    ),
    Cause(
        "own contribution twice",
        "each wrong rank's own contribution is counted twice in its sum: consistent with starting "
        "from its own and then adding it again",
        sums.own_twice,
        alone=True,
    ),
    Cause(
        "one contribution twice",
        "rank {k}'s contribution is counted twice in the sum: consistent with a loop over the "
        "ranks that visits rank {k} twice",
        sums.one_twice,
        alone=True,
    ),
    Cause(
        "running sum passed on",
        "each wrong rank counts its neighbour's contribution {times} times: consistent with "
        "passing on the sum so far, where what was last received is to be passed on",
        sums.running_sum_passed_on,
        alone=True,
    ),
    Cause(
        "different contributions twice",
        "every wrong element counts one rank's contribution twice, not everywhere the same rank's: "
        "consistent with one step too many",
        sums.different_twice,
        alone=True,
    ),
    Cause(
        "chunk shifted",
        "the right values are there, shifted by one rank's chunk: consistent with an index that is "
        "off by one rank",
        places.chunk_shifted,
    ),
    Cause(
        "one result for all",
        "the wrong ranks hold what rank {k} should: consistent with everybody having been given "
        "rank {k}'s part",
        places.one_result_for_all,
        alone=True,
    ),
    Cause(
        "another's result",
        "{what}: consistent with an index that is off",
        places.anothers_result,
        alone=True,
    ),
    Cause(
        "along the last dimension",
        "the right parts are there, cut or joined along the last dimension: consistent with "
        "dim=-1 in place of dimension 0",
        places.along_the_last_dimension,
        alone=True,
    ),
    Cause(
        "part for another",
        "rank {r} holds what rank {source} has for rank {to}: consistent with parts taken from the "
        "wrong place in the input",
        places.part_for_another,
        alone=True,
    ),
    Cause(
        "parts in wrong order",
        "on rank {r}, part {i} of the result is what belongs in part {j}: consistent with right "
        "parts in the wrong order",
        places.parts_in_wrong_order,
        alone=True,
    ),
    Cause(
        "tail missing",
        "only the last {tail} of {size} elements are wrong, and {size} does not divide by {W} "
        "ranks: consistent with a remainder that was dropped",
        places.tail_missing,
    ),
    Cause(
        "untouched",
        "the wrong elements {pattern}: consistent with an output that was never written there",
        copies.untouched,
        alone=True,
    ),
    Cause(
        "only one contribution",
        "each wrong element is what one rank put in, with nothing added to it: consistent with one "
        "step too few, or with chunks that were passed on or overwritten before they were added up",
        sums.only_one,
        alone=True,
    ),
    Cause(
        "several contributions wrong",
        "on rank {r}, in {where}, {what}: consistent with steps between the wrong ranks, or "
        "with the wrong chunks",
        sums.several_mistakes,
        alone=True,
    ),
)
