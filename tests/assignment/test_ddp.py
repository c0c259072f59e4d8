"""Your data parallelism, against what it is by definition: the mean over the ranks.

The model's gradients are known (see training.py): the values that each rank puts in. They are made
such that a wrong mean tells whose part is missing: ranks 0, 1, 2 have 12, 120, 1200 times a digit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import multirank
from multirank import Operation, Run

from . import training
from .calls import Call, group_name
from .explain import listed
from .running import Subject, Worlds, fail, require_finished
from .training import Spec, Values

SPEC = Spec({"embedding": 30, "body": 28, "gate": 11, "head": 36, "bias": 8}, {})
MIXED = replace(
    SPEC, dtypes={"body": torch.bfloat16, "gate": torch.bfloat16, "head": torch.float64}
)
CAP = 150  # bytes of a bucket, in most tests; each holds one parameter
PARTLY_USED = 200  # some hold two, of which one may be unused
MIB = 2**20
Group = tuple[int, ...] | None


@dataclass(frozen=True)
class Runner:
    """Calls a function of training.py on every rank."""

    subject: Subject
    worlds: Worlds

    def __call__(
        self,
        name: str,
        world_size: int,
        function: Callable[..., Any],
        *args: Any,
        told: Mapping[str, Any] | None = None,
        group: Group = None,
    ) -> Run:
        """told: the arguments of the tested function that are worth telling, by name."""
        __tracebackhide__ = True
        before = {rank: dict(told or {}) for rank in group or range(world_size)}
        calls = [Call(name, before, group=group)]
        done = self.worlds.call(self.subject, world_size, calls, function, *args)
        require_finished(self.subject, done, calls)
        return done


@pytest.fixture
def run(implementation: str, worlds: Worlds) -> Runner:
    return Runner(Subject(implementation, "ddp"), worlds)


# --- What goes in, and what must come out -------------------------------------------------------


def digits(rank: int, size: int, dtype: torch.dtype, shift: int = 0) -> Tensor:
    """12 times 1, 2, 3, 1, ... on rank 0, ten times that on rank 1; less in bfloat16."""
    values = (torch.arange(size) + shift) % 3 + 1
    values = values + 2 * rank if dtype == torch.bfloat16 else values * 10**rank
    return (12 * values).to(dtype)


def values_of(spec: Spec, rank: int, shift: int = 0, unused: Collection[str] = ()) -> Values:
    """What a rank gives each layer that it uses."""
    sizes = dict(spec.layers)
    sizes |= {name: sizes[other] for name, other in (spec.tied or {}).items()}
    return {
        name: digits(rank, size, spec.dtypes.get(name, torch.float32), shift)
        for name, size in sizes.items()
        if name not in unused
    }


def local_gradients(spec: Spec, micro_batches: Sequence[Values]) -> dict[str, Tensor | None]:
    """What each gradient is on a rank by itself."""
    found: dict[str, Tensor | None] = {
        name: None for name in spec.layers if name not in spec.frozen
    }
    for values in micro_batches:
        for name, given in values.items():
            owner = (spec.tied or {}).get(name, name)
            if owner in found:
                before = found[owner]
                found[owner] = given if before is None else before + given
    return found


def require_means(
    what: str,
    spec: Spec,
    ranks: Sequence[int],
    found: Sequence[Mapping[str, Tensor | None]],
    local: Sequence[Mapping[str, Tensor | None]],
    mistakes: Mapping[str, Sequence[Mapping[str, Tensor | None]]] | None = None,
) -> None:
    """Every gradient is the mean over the ranks, where None counts as zero.

    mistakes: by what is told of each, the gradients whose means are found then.
    """
    __tracebackhide__ = True
    for name in spec.layers:
        given = [own.get(name) for own in local]
        users = [rank for rank, own in zip(ranks, given, strict=True) if own is not None]
        present = [own for own in given if own is not None]
        for rank, own in zip(ranks, found, strict=True):
            gradient = own[name]
            if not present:
                if gradient is not None and (name in spec.frozen or bool(gradient.any())):
                    fail(f"{what}: `{name}` has got a gradient on rank {rank}; it must have none.")
                continue
            mean = mean_of(given, present[0])
            idle = [one for one in ranks if one not in users]
            note = [f"`{name}` was not used on ranks {idle}: it counts as zero there"]
            if gradient is None:
                fail(f"{what}: `{name}` has no gradient on rank {rank}.", note if idle else [])
            if gradient.dtype != mean.dtype or not torch.equal(gradient, mean):
                fail(
                    f"{what}: on rank {rank}, the gradient of `{name}` is not the mean.",
                    [
                        f"  is      {gradient.tolist()[:6]} ...",
                        f"  must be {mean.tolist()[:6]} ...",
                        *(note if idle else []),
                    ],
                    likely_mistakes(name, found, mean, mistakes or {})
                    or causes(ranks, name, found, given, mean),
                )


def mean_of(given: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """The mean over the ranks, where None counts as zero."""
    zeros = torch.zeros_like(like)
    return torch.stack([zeros if own is None else own for own in given]).sum(0) / len(given)


def likely_mistakes(
    name: str,
    found: Sequence[Mapping[str, Tensor | None]],
    mean: Tensor,
    mistakes: Mapping[str, Sequence[Mapping[str, Tensor | None]]],
) -> list[str]:
    """The first mistake that all ranks bear out."""
    for words, local in mistakes.items():
        wrong = mean_of([own.get(name) for own in local], mean)
        if all((own := one[name]) is not None and torch.equal(own, wrong) for one in found):
            return [words]
    return []


def causes(
    ranks: Sequence[int],
    name: str,
    found: Sequence[Mapping[str, Tensor | None]],
    given: Sequence[Tensor | None],
    mean: Tensor,
) -> list[str]:
    """What wrong gradients are consistent with."""
    actual = [own[name] for own in found]
    if any(own is None for own in actual):
        return []
    inputs = [torch.zeros_like(mean) if own is None else own for own in given]
    facts = multirank.Facts(op="AVG", ranks=ranks, world_size=4, before=inputs)
    told = multirank.explain(actual, [mean] * len(actual), inputs, facts).causes
    return [one.partition("consistent with ")[2] for one in told]


# --- shard_batch --------------------------------------------------------------------------------


def require_parts(run: Runner, sizes: Sequence[tuple[int, int]]) -> None:
    """Rows that follow one another, as many on every rank, or one more on the first ranks."""
    __tracebackhide__ = True
    batches = [(torch.arange(2 * rows).view(rows, 2), n) for rows, n in sizes]
    found = run("shard_batch", 1, training.shard, batches).results[0]
    for (batch, n), parts in zip(batches, found, strict=True):
        lengths = [len(part) for part in parts]
        told = f"shard_batch of {len(batch)} rows on {n} ranks"
        if not torch.equal(torch.cat(parts), batch):
            fail(f"{told}: the parts one after another are not the batch; their sizes: {lengths}.")
        if lengths != sorted(lengths, reverse=True) or lengths[0] - lengths[-1] > 1:
            fail(f"{told}: the parts have {lengths} rows; the remainder goes to the first ranks.")


@pytest.mark.problem("shard_batch", share=0.5)
def test_shard_batch_cuts_a_batch_into_equal_parts(run: Runner) -> None:
    require_parts(run, [(12, 4), (12, 3), (6, 2), (5, 1)])


@pytest.mark.problem("shard_batch", share=0.5)
def test_shard_batch_gives_the_remainder_to_the_first_ranks(run: Runner) -> None:
    require_parts(run, [(11, 4), (10, 4), (7, 3), (2, 4), (0, 2)])


# --- broadcast_parameters -----------------------------------------------------------------------


def require_broadcast(run: Runner, world_size: int, src: int, group: Group = None) -> Run:
    """All ranks have what src has: the weights 1 + src, and the counter 10 + src."""
    __tracebackhide__ = True
    spec = replace(SPEC, frozen=("body",), buffer=True)
    name = None if group is None else group_name(group)
    args = (name, spec, src)
    done = run(
        *("broadcast_parameters", world_size, training.broadcast),
        *args,
        told={"src": src},
        group=group,
    )
    require_one_beginning("broadcast_parameters", done.results, src, group or range(world_size))
    return done


def require_one_beginning(
    what: str, found: Sequence[Mapping[str, Tensor]], src: int, ranks: Collection[int]
) -> None:
    __tracebackhide__ = True
    for rank in ranks:
        for name, held in found[rank].items():
            whose = held.flatten()[0].item() - (10 if name == "counter" else 1)
            if not bool((held == held.flatten()[0]).all()) or whose != src:
                kind = "buffer" if name == "counter" else "parameter"
                fail(
                    f"{what}: on rank {rank}, {kind} `{name}` is not that of rank {src}.",
                    [f"it holds that of rank {whose:.0f}"] if whose in ranks else [],
                )


@pytest.mark.problem("broadcast_parameters", share=0.5)
def test_broadcast_parameters_gives_everybody_those_of_one_rank(run: Runner) -> None:
    require_broadcast(run, 4, 0)
    require_broadcast(run, 3, 2)


@pytest.mark.problem("broadcast_parameters", share=0.3)
def test_broadcast_parameters_works_in_a_sub_group(run: Runner) -> None:
    require_broadcast(run, 4, 3, (1, 3))


@pytest.mark.problem("broadcast_parameters", share=0.2)
def test_broadcast_parameters_sends_each_of_them_once(run: Runner) -> None:
    done = require_broadcast(run, 2, 0)
    size = 4 * sum(SPEC.layers.values()) + 8  # a counter of int64
    if (moved := sum(one.nbytes for one in done.trace.of_rank(1))) > size + len(SPEC.layers):
        fail(f"broadcast_parameters communicates {moved} bytes; there are {size}.")


# --- all_reduce_gradients -----------------------------------------------------------------------


def reduce(
    run: Runner,
    world_size: int,
    flat: bool,
    spec: Spec = SPEC,
    unused: Mapping[int, Collection[str]] | None = None,
    group: Group = None,
    given: bool = False,
) -> Run:
    """Calls all_reduce_gradients, and looks at every gradient. given: with all_reduce=."""
    __tracebackhide__ = True
    ranks = list(group or range(world_size))
    local = [
        local_gradients(spec, [values_of(spec, rank, unused=(unused or {}).get(rank, ()))])
        if rank in ranks
        else {}
        for rank in range(world_size)
    ]
    name = None if group is None else group_name(group)
    told = {"flat": flat} | ({"all_reduce": "one of the test's"} if given else {})
    args = (name, spec, flat, given, multirank.per_rank(local))
    try:
        done = run(
            "all_reduce_gradients", world_size, training.reduce, *args, told=told, group=group
        )
    except pytest.fail.Exception as failed:
        said = str(failed)
        if unused and (" hangs " in said or "do not agree on the size" in said):
            failed.msg = "\n".join([*less_guesses(said), *none_left_out(unused)])
        raise
    if given and not any(mark.label == training.GIVEN for mark in done.trace.marks):
        fail(f"all_reduce_gradients(flat={flat}, all_reduce=...) does not call what it is given.")
    require_means(
        f"all_reduce_gradients(flat={flat}) on ranks {ranks}",
        spec,
        ranks,
        [done.results[rank] for rank in ranks],
        [local[rank] for rank in ranks],
    )
    return done


def none_left_out(unused: Mapping[int, Collection[str]]) -> list[str]:
    """What is likely where ranks do not fit together, some of which had no gradients."""
    idle = [
        f"{' and '.join(f'`{name}`' for name in names)} had no gradient on rank {rank}"
        for rank, names in unused.items()
    ]
    return [f"  {'; '.join(idle)}", "  consistent with leaving those out there"]


@pytest.mark.problem("all_reduce_gradients", share=0.25)
def test_all_reduce_gradients_makes_means(run: Runner) -> None:
    for n in (2, 4, 3, 1):
        reduce(run, n, flat=False)
    reduce(run, 2, flat=False, given=True)


@pytest.mark.problem("all_reduce_gradients", share=0.25)
def test_all_reduce_gradients_flat_makes_the_same(run: Runner) -> None:
    for n in (2, 4, 3, 1):
        reduce(run, n, flat=True)
    reduce(run, 4, flat=True, spec=MIXED)
    reduce(run, 2, flat=True, given=True)


@pytest.mark.problem("all_reduce_gradients", share=0.2 / 2)
@pytest.mark.parametrize("flat", [False, True])
def test_all_reduce_gradients_counts_none_as_zero(run: Runner, flat: bool) -> None:
    reduce(run, 3, flat, unused={1: ("bias",), 2: ("bias", "body")})
    reduce(run, 3, flat, unused=dict.fromkeys(range(3), ("gate",)))


@pytest.mark.problem("all_reduce_gradients", share=0.1 / 2)
@pytest.mark.parametrize("flat", [False, True])
def test_all_reduce_gradients_works_in_a_sub_group(run: Runner, flat: bool) -> None:
    reduce(run, 4, flat, group=(0, 2, 3))


@pytest.mark.problem("all_reduce_gradients", share=0.2)
def test_all_reduce_gradients_sends_as_little_as_it_can(run: Runner) -> None:
    spec = replace(MIXED, frozen=("gate",), tied={"output": "embedding"})
    for flat, calls in ((False, 4), (True, 3)):
        done = reduce(run, 3, flat, spec)
        require_little(f"all_reduce_gradients(flat={flat})", done.trace.of_rank(0), spec, calls)


def require_little(what: str, sent: Sequence[Operation], spec: Spec, calls: int) -> None:
    """So many calls, and the bytes of the gradients; a call of a byte a parameter is free."""
    __tracebackhide__ = True
    sizes = {
        name: size * spec.dtypes.get(name, torch.float32).itemsize
        for name, size in spec.layers.items()
        if name not in spec.frozen
    }
    free = next((one for one in sent if one.nbytes <= len(spec.layers)), None)
    counted = [one.nbytes for one in sent if one is not free]
    if sum(counted) > sum(sizes.values()):
        fail(f"{what} communicates {sum(counted)} bytes; gradients have {sum(sizes.values())}.")
    if len(counted) > calls:
        fail(f"{what} makes {len(counted)} calls; {calls} are enough.")


# --- partition_buckets --------------------------------------------------------------------------


def require_buckets(
    run: Runner,
    sizes: Sequence[int],
    cap: float,
    dtypes: Sequence[torch.dtype] = (),
    frozen: Collection[int] = (),
) -> None:
    """The rule of the docstring, sentence by sentence. cap: in bytes."""
    __tracebackhide__ = True
    kinds = dtypes or [torch.float32] * len(sizes)
    tensors = [torch.zeros(size, dtype=kind) for size, kind in zip(sizes, kinds, strict=True)]
    trainable = [place not in frozen for place in range(len(sizes))]
    calls = [(tensors, trainable, cap / MIB)]
    told_of = {"bucket_cap_mb": f"{cap / MIB:.4g} ({cap:g} bytes)"}
    (found,) = run("partition_buckets", 1, training.partition, calls, told=told_of).results[0]
    nbytes = [one.numel() * one.element_size() for one in tensors]
    told = [
        f"the parameters have {nbytes} bytes, the cap is {cap:g}",
        f"the buckets, as places in the parameters: {found}",
    ]
    expected = [place for place in reversed(range(len(sizes))) if trainable[place]]
    if [place for bucket in found for place in bucket] != expected:
        fail("The buckets one after another must be the trainable parameters in reverse.", told)
    for number, bucket in enumerate(found):
        held = sum(nbytes[place] for place in bucket)
        if not bucket:
            fail(f"Bucket {number} is empty.", told)
        if len({kinds[place] for place in bucket}) > 1:
            fail(f"Bucket {number} holds more than one dtype.", told)
        if held > cap and len(bucket) > 1:
            fail(f"Bucket {number} holds {held} bytes, which is more than the cap.", told)
        if number + 1 < len(found):
            after = found[number + 1][0]
            if kinds[after] == kinds[bucket[0]] and held + nbytes[after] <= cap:
                fail(f"Parameter {after} would have fitted into bucket {number}.", told)


@pytest.mark.problem("partition_buckets", share=0.5)
def test_partition_buckets_fills_buckets_in_reverse_order(run: Runner) -> None:
    sizes = [30, 41, 25, 60, 12, 33, 50]
    for cap in (10**6, 500, 240, 372, 380):
        require_buckets(run, sizes, cap)
    require_buckets(run, [125_000, 125_000, 12_000, 200_000], MIB)
    require_buckets(run, [], 100)


@pytest.mark.problem("partition_buckets", share=0.2)
def test_partition_buckets_leaves_a_large_parameter_alone(run: Runner) -> None:
    for sizes in ([6, 90, 7, 5], [90, 6, 7, 5], [6, 7, 5, 90]):
        require_buckets(run, sizes, 100)


@pytest.mark.problem("partition_buckets", share=0.2)
def test_partition_buckets_has_one_dtype_in_each(run: Runner) -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.float64]
    for cap in (10**6, 120):
        require_buckets(run, [20, 25, 30, 28, 15], cap, dtypes)


@pytest.mark.problem("partition_buckets", share=0.1)
def test_partition_buckets_leaves_out_what_is_frozen(run: Runner) -> None:
    require_buckets(run, [20, 25, 30, 28, 15], 250, frozen=(1, 4))


# --- DistributedDataParallel --------------------------------------------------------------------


# What is averaged in place of all micro-batches of a step, by what is told of it.
INCOMPLETE = {
    "only the first micro-batch having been averaged, as without no_sync": slice(1),
    "only the last micro-batch having been averaged": slice(-1, None),
    "a bucket that was sent before this gradient was there": slice(-1),
}


def train(
    run: Runner,
    world_size: int,
    spec: Spec = SPEC,
    cap: float = CAP,
    steps: int = 2,
    micro_batches: int = 1,
    unused: Callable[[int, int], Collection[str]] = lambda step, rank: (),
    group: Group = None,
    interrupted: bool = False,
) -> Run:
    """Trains, and looks at the gradients of every step.

    cap: in bytes. interrupted: whether an exception is raised inside no_sync before.
    """
    __tracebackhide__ = True
    ranks = list(group or range(world_size))
    given = [
        [
            [
                values_of(spec, rank, step + micro, unused(step, rank))
                for micro in range(micro_batches)
            ]
            for step in range(steps)
        ]
        for rank in range(world_size)
    ]
    name = None if group is None else group_name(group)
    args = (name, spec, cap / MIB, multirank.per_rank(given), interrupted)
    told_of = {"bucket_cap_mb": f"{cap / MIB:.4g} ({cap:g} bytes)"}
    try:
        done = run(
            *("DistributedDataParallel", world_size, training.train),
            *args,
            told=told_of,
            group=group,
        )
    except pytest.fail.Exception as failed:
        told = str(failed)
        if (idle := unused_in_words(ranks, steps, unused)) and "not written yet" not in told:
            failed.msg = "\n".join([f"{idle}:", *less_guesses(told), *why_unused_fails(told)])
        raise
    for step in range(steps):
        require_means(
            f"DistributedDataParallel, step {step + 1} of {steps} on ranks {ranks}",
            spec,
            ranks,
            [done.results[rank]["gradients"][step] for rank in ranks],
            [local_gradients(spec, given[rank][step]) for rank in ranks],
            {
                words: [local_gradients(spec, given[rank][step][some]) for rank in ranks]
                for words, some in INCOMPLETE.items()
            },
        )
    return done


def unused_in_words(
    ranks: Sequence[int], steps: int, unused: Callable[[int, int], Collection[str]]
) -> str:
    """Which parameter was not used where, in the first step that has one; empty if all were."""
    for step in range(steps):
        for name in (name for rank in ranks for name in unused(step, rank)):
            idle = [rank for rank in ranks if name in unused(step, rank)]
            return f"Parameter `{name}` was not used on {listed(idle)} in step {step + 1}"
    return ""


def less_guesses(told: str) -> list[str]:
    """The lines of a failure without its causes: what was not used says more."""
    return [line for line in told.splitlines() if not line.startswith("  consistent with ")]


def why_unused_fails(told: str) -> list[str]:
    """What is likely where ranks do not come to an end, or do not fit together."""
    if " raises " in told.partition("\n")[0]:
        return []
    if "do not agree on the size" in told:
        likely = "a bucket without the gradients that were not used here"
    else:
        likely = "a bucket that waits for a gradient which never comes"
    return [
        f"  consistent with {likely}, or with ranks that issue their buckets in different orders"
    ]


def step_of(done: Run, rank: int, number: int) -> tuple[list[Operation], float, float]:
    """What a rank issued in a step, and when the step began and ended."""
    begin, end = times_of(done, rank, f"step {number}")
    return [one for one in done.trace.of_rank(rank) if begin <= one.issued <= end], begin, end


def times_of(done: Run, rank: int, label: str) -> list[float]:
    """When a rank put a mark with this label into the trace."""
    return [one.time for one in done.trace.marks if (one.rank, one.label) == (rank, label)]


class TestDistributedDataParallel:
    @pytest.mark.problem("distributed_data_parallel", share=0.1)
    def test_all_ranks_begin_as_the_first_of_the_group(self, run: Runner) -> None:
        for n, group in ((3, None), (4, (1, 3))):
            done = train(run, n, replace(SPEC, buffer=True), group=group)
            begun = [one.get("begun", {}) for one in done.results]
            ranks = group or range(n)
            require_one_beginning("after construction", begun, ranks[0], ranks)

    @pytest.mark.problem("distributed_data_parallel", share=0.25)
    def test_gradients_are_means_in_every_step(self, run: Runner) -> None:
        for n in (2, 4, 3, 1):
            train(run, n, steps=3)
        train(run, 3, cap=10**6)

    @pytest.mark.problem("distributed_data_parallel", share=0.15)
    def test_micro_batches_add_up_in_silence(self, run: Runner) -> None:
        done = train(run, 3, micro_batches=3)
        for rank in range(3):
            sent, _, _ = step_of(done, rank, 0)
            quiet = times_of(done, rank, "quiet 0")[-1]
            if early := [one for one in sent if one.issued < quiet]:
                fail(f"Rank {rank} issues {early[0].name} inside no_sync; it must be silent.")
        require_exceptions_to_leave_no_sync(run, overlaps(done))

    @pytest.mark.problem("distributed_data_parallel", share=0.15)
    def test_a_parameter_that_a_rank_does_not_use(self, run: Runner) -> None:
        def bias_on_rank_1(step: int, rank: int) -> Collection[str]:
            return ("bias",) if (step, rank) == (0, 1) else ()

        def another_on_each(step: int, rank: int) -> Collection[str]:
            return ([*SPEC.layers][(step + rank) % 5],)

        for cap in (CAP, PARTLY_USED):
            train(run, 3, cap=cap, unused=bias_on_rank_1)
            train(run, 3, cap=cap, unused=another_on_each)

    @pytest.mark.problem("distributed_data_parallel", share=0.1)
    def test_all_kinds_of_parameters(self, run: Runner) -> None:
        train(run, 4, MIXED)
        train(run, 3, replace(SPEC, frozen=("body", "bias")))
        train(run, 3, replace(SPEC, tied={"output": "embedding"}))
        train(run, 3, replace(SPEC, layers={**SPEC.layers, "body": 300}))
        train(run, 3, unused=lambda step, rank: ("gate",))

    @pytest.mark.problem("distributed_data_parallel", share=0.05)
    def test_a_sub_group(self, run: Runner) -> None:
        train(run, 4, group=(0, 2, 3))

    @pytest.mark.problem("distributed_data_parallel", share=0.1)
    def test_buckets_are_issued_while_backward_runs(self, run: Runner) -> None:
        done = train(run, 3)
        for rank in range(3):
            sent, _, end = step_of(done, rank, 1)
            last = times_of(done, rank, "backward embedding")[1]
            if not any(one.issued < last for one in sent):
                finish = times_of(done, rank, "finish 1")[0]
                late = bool(sent) and all(one.issued > finish for one in sent)
                fail(
                    f"Rank {rank} issues nothing before the last gradient is ready.",
                    guessed=["issuing all buckets in finish_gradient_synchronization"]
                    if late
                    else [],
                )
            if early := [one for one in sent if one.waited is not None and one.waited < last]:
                fail(
                    f"Rank {rank} waits for {early[0].name} (line {early[0].line}) before the last "
                    "gradient is ready."
                )
            if open_ := [one for one in sent if one.completed is None or one.completed > end]:
                fail(f"Rank {rank} has not waited for {open_[0].name} (line {open_[0].line}).")

    @pytest.mark.problem("distributed_data_parallel", share=0.05)
    def test_there_is_a_call_for_each_bucket(self, run: Runner) -> None:
        spec = Spec({"embedding": 20, **{f"more{i}": 5 for i in range(12)}}, {})
        done = train(run, 2, spec, cap=100, micro_batches=2)
        sent, _, _ = step_of(done, 0, 1)
        require_little("DistributedDataParallel", sent, spec, 4 + 1)
        if (largest := max(one.nbytes for one in sent)) > 100:
            fail(f"DistributedDataParallel issues a message of {largest} bytes; the cap is 100.")

    @pytest.mark.problem("distributed_data_parallel", share=0.05)
    def test_communication_hides_behind_backward(self, run: Runner) -> None:
        spec = Spec({"embedding": 64, **{f"layer{i}": 64 for i in range(7)}}, {})
        overlapped = train(run, 4, spec, cap=256, steps=1)
        inputs = multirank.per_rank([values_of(spec, rank) for rank in range(4)])
        args = (4, training.train_without_overlap, True, spec, inputs)
        flat = run("all_reduce_gradients", *args, told={"flat": True})
        times = [step_time(done) for done in (overlapped, flat)]
        if times[0] > 0.9 * times[1]:
            fail(
                f"A step takes {times[0] * 1e3:.1f} ms on a modelled network, and one without "
                f"overlap {times[1] * 1e3:.1f} ms; it must be shorter.",
                ["--timeline DIR draws what the ranks do"],
            )


def overlaps(done: Run) -> bool:
    """Whether something is issued in the first step before finish_gradient_synchronization."""
    sent, _, _ = step_of(done, 0, 0)
    return any(one.issued < times_of(done, 0, "finish 0")[0] for one in sent)


def require_exceptions_to_leave_no_sync(run: Runner, overlapped: bool) -> None:
    """A step after an exception inside no_sync is like any other.

    overlapped: whether others send before finish_gradient_synchronization.
    """
    __tracebackhide__ = True
    likely = "what no_sync changes not being put back: try, finally"
    try:
        done = train(run, 2, steps=1, interrupted=True)
    except pytest.fail.Exception as failed:
        said = [*less_guesses(str(failed)), f"  consistent with {likely}"]
        failed.msg = "\n".join(["After an exception inside no_sync, in the next step:", *said])
        raise
    if any(result["swallowed"] for result in done.results):
        fail("An exception inside no_sync does not come out of it.")
    if overlapped and not overlaps(done):
        fail(
            "After an exception inside no_sync, nothing is issued in the next step before "
            "finish_gradient_synchronization.",
            guessed=[likely],
        )


def step_time(done: Run) -> float:
    """Seconds of a step where the all-reduce of a layer takes 1 ms, and its backward 2."""
    hops = 2 * (4 - 1)
    network = multirank.Fabric("as graded", latency=1e-5, bandwidth=64 / (1e-3 / hops - 1e-5))
    inside = []
    for rank in range(4):
        sent, _, _ = step_of(done, rank, 0)
        inside += sent
    marks = [one for one in done.trace.marks if one.kind == "compute"]
    return multirank.replay(multirank.Trace(inside, marks), network, 4).makespan
