"""What the tests that students run say of typical first mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.paths import ROOT
from autograder.selfcheck.variant import Patch

from .submissions import Files, patched, stub_files

_AVERAGES_OVER_ALL = """
    others = [torch.empty_like(flat) for _ in ranks]
    handles = [dist.isend(flat.clone(), peer) for peer in ranks if peer != ranks[rank]]
    for other, peer in zip(others, ranks, strict=True):
        if peer == ranks[rank]:
            other.copy_(flat)
        else:
            dist.recv(other, peer)
    for handle in handles:
        handle.wait()
    total = others[0].clone()
    for other in others[1:]:
        combine(total, other, out=total)
    flat.copy_(total / dist.get_world_size() if op == ReduceOp.AVG else total)
"""
_BLOCKING_RING = """
    right, left = ranks[(rank + 1) % n], ranks[(rank - 1) % n]
    for _ in range(n - 1):
        dist.send(flat, right)
        dist.recv(flat, left)
"""
_BLOCKING_ALL_GATHER = """
    right, left = ranks[(rank + 1) % n], ranks[(rank - 1) % n]
    for _ in range(n - 1):
        dist.send(input, right)
        dist.recv(input, left)
"""
_TO_ITSELF_TOO = """
    if rank == root:
        for peer in ranks:
            dist.send(flat, peer)
    else:
        dist.recv(flat, src)
"""
_PLACES_FOR_RANKS = """
    if rank == root:
        for peer in range(n):
            if peer != src:
                dist.send(flat, peer)
    else:
        dist.recv(flat, src)
"""


def said(tmp_path: Path, body: dict[str, str], *arguments: str) -> str:
    """What pytest prints, in one line, when these functions are written and no others."""
    text = stub_files()["collectives.py"].decode()
    for name, lines in body.items():
        stub = rf'    raise NotImplementedError\("Problem [\d.]+, {name}: not written yet"\)\n'
        text, found = re.subn(stub, lines, text)
        assert found == 1
    return said_of(tmp_path, {"collectives.py": text.encode()}, "collectives", *arguments)


def said_of(tmp_path: Path, files: Files, tested: str, *arguments: str) -> str:
    """What pytest prints, in one line, when a package has these files."""
    package = tmp_path / "tried"
    package.mkdir()
    for name, content in files.items():
        (package / name).write_bytes(content)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", f"tests/assignment/test_{tested}.py"),
            *("--implementation=tried", "-q", "-p", "no:cacheprovider", *arguments),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return " ".join(done.stdout.split())


_PLACE = "a place in the group being taken for a rank"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "test", "told", "not_told"),
    [
        ({"all_reduce": _BLOCKING_RING}, "in_a_subgroup", "everybody sends before", _PLACE),
        ({"broadcast": _TO_ITSELF_TOO}, "from_any_root", "being its own partner", _PLACE),
        ({"broadcast": _PLACES_FOR_RANKS}, "in_a_subgroup", _PLACE, "own partner"),
        ({"all_reduce": _AVERAGES_OVER_ALL}, "in_a_subgroup", "divided by 4", "passed"),
    ],
    ids=["blocking ring", "to itself", "places for ranks", "average over all ranks"],
)
def test_a_first_mistake_is_told_its_cause_and_no_other(
    tmp_path: Path, body: dict[str, str], test: str, told: str, not_told: str
) -> None:
    text = said(tmp_path, body, "-k", f"{next(iter(body))}_ and {test}")
    assert told in text
    assert not_told not in text


@pytest.mark.slow
def test_ranks_that_hang_in_different_calls_are_told_each_their_own(tmp_path: Path) -> None:
    text = said(tmp_path, {"all_gather": _BLOCKING_ALL_GATHER}, "-k", "all_gather_ and subgroup")
    for ranks, group in (("1 and 3", "[1, 3]"), ("0 and 2", "[0, 2, 3]")):
        _, _, after = text.partition(f"called on ranks {ranks}: all_gather(")
        assert after.partition("called")[0].partition("global ranks ")[2].startswith(group), text


_ONE_RANK_ALONE = """
    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor, src, group=group)
    if dist.get_rank(group) == 0:
        dist.barrier(group)
"""
_NO_SUCH_NAME = """
    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor, src, group=group)
    unknown
"""
_ONE_SENDS_MORE = """
    for tensor in (*module.parameters(), *module.buffers()):
        extended = torch.cat([tensor.flatten()] * (1 if dist.get_rank() else 2))
        dist.broadcast(extended, src, group=group)
"""
_WARNED_BY_TORCH = """
    import warnings
    warnings.warn_explicit("deprecated", FutureWarning, torch.__file__, 1)
    unknown
"""
_BLOCKING_SCHEDULE = """
    if not stage.is_first:
        dist.recv(stage.receive_buffer(1), previous, group)
    dist.barrier(group)
"""
_ONE_BUFFER = (
    "return [dist.P2POp(dist.isend, result.contiguous(), peer, group)]",
    "stage.buffer = getattr(stage, 'buffer', result.clone()).resize_(result.shape).copy_(result)\n"
    "        return [dist.P2POp(dist.isend, stage.buffer, peer, group)]",
)
_SHARE = "share = microbatch_sizes[microbatch] / sum(microbatch_sizes)"
_CALLED = "called: run_schedule(schedule=['F0 F1 F2 F3 B0 B1 B2 B3'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "patch", "tests", "told", "not_told"),
    [
        ("ddp", "broadcast_parameters", _ONE_RANK_ALONE, "", "hangs", "own partner"),
        ("ddp", "broadcast_parameters", _NO_SUCH_NAME, "", "raises NameError", "own partner"),
        ("ddp", "broadcast_parameters", _ONE_SENDS_MORE, "", "the size", "a message of"),
        ("pipeline_parallel", "run_schedule", _WARNED_BY_TORCH, "", _CALLED, "had printed"),
        (
            *("pipeline_parallel", "run_schedule", _BLOCKING_SCHEDULE, "1f1b"),
            *("run_schedule hangs", "cannot be imported"),
        ),
        ("pipeline_parallel", "run_schedule", _ONE_BUFFER, "1f1b", "changed before wait()", "off"),
        (
            *("pipeline_parallel", "run_schedule", (_SHARE, "share = 1"), "weighs"),
            *("is not scaled: the sum of the micro-batches' means", "count equally"),
        ),
        (
            *("pipeline_parallel", "run_schedule", (_SHARE, "share = 1 / len(microbatch_sizes)")),
            *("weighs", "must be 1.36871. consistent with micro-batches that count equally", "off"),
        ),
    ],
    ids=[
        *("one rank alone", "no such name", "one sends more", "warned by torch"),
        *("hangs", "one buffer", "not scaled", "equal shares"),
    ],
)
def test_a_mistake_in_training_is_told_its_cause_and_no_other(
    tmp_path: Path, module: str, function: str, patch: Patch, tests: str, told: str, not_told: str
) -> None:
    files = patched({function: patch}, file=module)
    text = said_of(tmp_path, files, module, "-x", "-k", f"{function} and {tests or function}")
    assert told in text
    assert not_told not in text


_ADDED = "return _all_reduce(grad, None), None"
_IN_PLACE = "dist.all_reduce(x, group=group)\nreturn x"
_BIAS = "return reduce_from_tensor_parallel_region(F.linear(x, self.weight, self.bias), self.group)"
_SPLIT = ('_own_part if backward == "split" else _reduce_scatter', "_own_part")
_ALL_SPLIT = ('"split" if number == last else "reduce_scatter"', '"split"')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "patch", "test", "told"),
    [
        (
            "ReduceFrom.backward",
            _ADDED,
            "test_forward_and_backward",
            "with a sum over the ranks of",
        ),
        ("_all_reduce", _IN_PLACE, "test_forward_and_backward", "clone() it first"),
        ("_all_reduce", _IN_PLACE, "test_beside_the_input", "clone() it first"),
        ("GatherFrom.forward", _SPLIT, "test_gather_from", "a split, where the gradients"),
        ("RowParallelLinear.forward", _BIAS, "test_RowParallel", "a bias that every rank adds"),
        ("RowParallelLinear.forward", _BIAS, "test_ParallelMLP", "a bias that every rank adds"),
        ("ColumnParallelMLP.forward", _ALL_SPLIT, "test_ColumnParallelMLP", "summands are missing"),
    ],
    ids=[
        "added again",
        "gradient in place",
        "beside what is in place",
        "split",
        "bias",
        "bias of an MLP",
        "split throughout",
    ],
)
def test_a_mistake_in_parallel_layers_is_told_its_cause(
    tmp_path: Path, function: str, patch: Patch, test: str, told: str
) -> None:
    files = patched({function: patch}, file="tensor_parallel")
    assert told in said_of(tmp_path, files, "tensor_parallel", "-k", test)


@pytest.mark.slow
def test_random_cases_try_one_function_while_others_are_not_written(tmp_path: Path) -> None:
    body = {"all_reduce": _AVERAGES_OVER_ALL}
    text = said(
        tmp_path, body, "-k", "random and all_reduce", "--fuzz", "2", "--fuzz-seed", "490554"
    )
    assert "all_reduce is wrong on rank" in text
    assert "[all_reduce]' --fuzz 1 --fuzz-seed" in text
    assert "1 failed" in text


_WITHOUT_NONE = (
    "parameter.requires_grad]",
    "parameter.requires_grad and parameter.grad is not None]",
)
_NO_GRADIENT = ("input.detach().requires_grad_()", "input.detach()")
_ZEROS = ("return input.grad", "return None if self.is_first else torch.zeros_like(input)")
_POSTS_LATE = ("following is not None and following.kind == action.kind", "False")
_FROM_MINUS_1 = ("range(num_microbatches):", "range(-1, num_microbatches):")
_NOT_PUT_BACK = """
        self._synchronizes = False
        yield
        self._synchronizes = True
"""


@pytest.mark.slow  # 4 s each
@pytest.mark.parametrize(
    ("module", "patches", "tests", "told"),
    [
        (
            "ddp",
            {
                "all_reduce_gradients": _WITHOUT_NONE,
                "DistributedDataParallel.no_sync": _NOT_PUT_BACK,
            },
            "counts_none_as_zero or in_silence",
            [
                "called: all_reduce_gradients(flat=True)",
                "`bias` and `body` had no gradient on rank 2 consistent with leaving those out",
                "consistent with what no_sync changes not being put back: try, finally",
            ],
        ),
        (
            "pipeline_parallel",
            {"PipelineStage.forward": _NO_GRADIENT, "PipelineStage.backward": _ZEROS},
            "one_micro_batch or 1f1b",
            [
                "the gradient of the input of micro-batch 0 is off",
                "consistent with zeros: was the received input told that it requires a gradient?",
                "the gradient of the weight of layer 0 is off",
                "nothing being added up, or zeros coming back: was the received input told",
            ],
        ),
        (
            "pipeline_parallel",
            {"run_schedule": _POSTS_LATE, "one_f_one_b": _FROM_MINUS_1},
            "while_it_computes or fewer",
            [
                "consistent with receives that are posted only when their message is needed",
                "there is no micro-batch -1",
            ],
        ),
    ],
    ids=["ddp", "zeros come back", "late receives"],
)
def test_mistakes_of_several_functions_are_told_each_its_cause(
    tmp_path: Path, module: str, patches: dict[str, Patch], tests: str, told: list[str]
) -> None:
    text = said_of(tmp_path, patched(patches, file=module), module, "-k", tests)
    for words in told:
        assert words in text
    assert "another exception" not in text
