"""Where part 2 puts its tensors, on machines that have more than a CPU."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

import multirank
from reference import bandwidth


def measured_beside(accelerator: str) -> tuple[str, float]:
    """The device of gloo's group, and what measuring in it gives, beside an accelerator."""
    here = torch.device(accelerator)
    with mock.patch.object(torch.accelerator, "current_accelerator", return_value=here):
        device = bandwidth.group_device(None).type
        return device, bandwidth.measure("all_reduce", 8, warmup=0, iterations=1).seconds


@pytest.mark.parametrize("accelerator", ["mps", "cuda"])
def test_gloo_measures_on_cpu_whatever_else_there_is(accelerator: str) -> None:
    for device, seconds in multirank.run(measured_beside, 2, accelerator).results:
        assert device == "cpu"
        assert seconds > 0
