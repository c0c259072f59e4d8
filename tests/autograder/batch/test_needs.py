"""As many gradings at once as cores, memory and GPUs allow."""

from __future__ import annotations

import pytest

from autograder.batch.needs import (
    Slot,
    TooFewGPUs,
    needs_of,
    slots,
)
from autograder.grade import BUDGET
from autograder.machine import ENOUGH_GPUS
from tests.autograder.submissions import MANIFEST, small_manifest

GIB = 1 << 30
ALL = needs_of(MANIFEST.problems, gpus=0)
ON_GPUS = needs_of(MANIFEST.problems, gpus=ENOUGH_GPUS)
EIGHT = [str(number) for number in range(8)]


@pytest.mark.parametrize(
    ("cores", "memory", "most", "count"),
    [(2, 64, 0, 2), (64, 16, 0, 4), (64, 512, 0, 64), (1, 1, 0, 1), (64, 512, 5, 5)],
)
def test_a_core_and_the_memory_for_each(cores: int, memory: int, most: int, count: int) -> None:
    found = slots(ALL, cores=cores, memory=memory * GIB, gpus=[], most=most)
    assert len(found) == count


def test_gpus_are_shared_by_nobody() -> None:
    found = slots(ON_GPUS, cores=64, memory=512 * GIB, gpus=EIGHT, most=0)
    assert found == [Slot(0, ("0", "1", "2", "3")), Slot(1, ("4", "5", "6", "7"))]
    with pytest.raises(TooFewGPUs, match="needs 4 GPUs; this machine has 3"):
        slots(ON_GPUS, cores=64, memory=512 * GIB, gpus=EIGHT[:3], most=0)


def test_a_job_gets_more_minutes_than_a_grading_takes() -> None:
    one = needs_of(small_manifest("shard_batch").problems, gpus=0)
    assert 60 * ALL.minutes > BUDGET
    assert one.minutes < ALL.minutes
    assert (ALL.ranks, one.ranks) == (8, 4)
