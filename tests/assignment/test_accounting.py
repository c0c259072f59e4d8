"""Your arithmetic of scale, on the numbers that lectures and papers work out.

No ranks are needed: each test calls a function with plain numbers and compares what it returns. A
wrong number that a common mistake leads to is told so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from .running import Subject, fail, result

GIB = 1024**3
Numbers = float | tuple[int, ...]
Arguments = Mapping[str, Any]
Mistakes = Mapping[str, Numbers]  # what leads to which wrong result

RUN = {"tokens": 15e12, "parameters": 70e9}  # the run of the CS336 lecture: 6.3e24 FLOPs
H100 = {"peak_flops_per_second": 989e12, "mfu": 0.4}
GPT3: dict[str, Any] = {"batch": 1, "sequence": 2048, "hidden": 12288, "heads": 96}  # sbh (34 + 80)
SBH = 2048 * 12288


@pytest.fixture
def subject(implementation: str) -> Subject:
    """The module that is tested."""
    return Subject(implementation, "accounting")


def expect(
    subject: Subject,
    function: str,
    arguments: Arguments,
    wanted: Numbers,
    unit: str = "",
    mistakes: Mistakes | None = None,
) -> None:
    """Fails unless the function returns this."""
    __tracebackhide__ = True
    found = result(subject, function, arguments)
    if near(found, wanted):
        return
    called = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    fail(
        f"{function} returns {found}; it must be {wanted} {unit}".rstrip() + ".",
        [f"called: {function}({called})"],
        [cause for cause, leads_to in (mistakes or {}).items() if near(found, leads_to)],
    )


def near(found: Any, wanted: Numbers) -> bool:
    """Whether a result is this one, up to rounding."""
    if isinstance(wanted, tuple):
        return isinstance(found, (tuple, list)) and tuple(found) == wanted
    return hasattr(found, "__float__") and math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12)


def expect_refusals(subject: Subject, function: str, *bad: Arguments) -> None:
    """Fails unless every call with bad arguments raises ValueError."""
    __tracebackhide__ = True
    for arguments in bad:
        called = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        try:
            found = result(subject, function, arguments)
        except ValueError:
            continue
        fail(f"{function}({called}) returns {found}; it must raise ValueError.")


# --- Compute ------------------------------------------------------------------------------------


@pytest.mark.problem("training_compute", share=0.4)
def test_training_flops_of_70_b_parameters_and_15_t_tokens_are_6_3e24(subject: Subject) -> None:
    mistakes = {
        "2ND, the forward pass alone": 2.1e24,
        "4ND: a backward pass that takes no longer than the forward pass": 4.2e24,
        "3ND: a multiply and an add counted as one FLOP": 3.15e24,
    }
    expect(subject, "training_flops", RUN, 6.3e24, "FLOPs", mistakes)
    again = {"6ND: no second forward pass": 6.3e24, "12ND: a second backward pass": 12.6e24}
    expect(subject, "training_flops", RUN | {"recomputation": True}, 8.4e24, "FLOPs", again)


@pytest.mark.problem("training_compute", share=0.45)
def test_training_days_of_that_run_are_about_500_years_on_one_h100(subject: Subject) -> None:
    days = 6.3e24 / (0.4 * 989e12) / 86400
    assert 500 < days / 365.25 < 510
    mistakes = {
        "seconds where days are asked for": days * 86400,
        "hours where days are asked for": days * 24,
        "years where days are asked for": days / 365.25,
        "an mfu of 1": days * 0.4,
        "mfu taken for a percentage, and divided by 100": days * 100,
    }
    run = {"flops": 6.3e24, "devices": 1} | H100
    expect(subject, "training_days", run, days, "days", mistakes)
    mistakes = {"one device: all of them work at once": days}
    expect(subject, "training_days", run | {"devices": 1024}, days / 1024, "days", mistakes)


@pytest.mark.problem("training_compute", share=0.15)
def test_training_flops_and_training_days_refuse_what_cannot_be(subject: Subject) -> None:
    run = {"flops": 86400, "devices": 1, "peak_flops_per_second": 1, "mfu": 1}
    expect(subject, "training_flops", {"parameters": 1, "tokens": 1}, 6, "FLOPs")
    expect(subject, "training_days", run, 1, "days")
    expect_refusals(subject, "training_flops", {"parameters": -1, "tokens": 1})
    expect_refusals(subject, "training_days", run | {"mfu": 40}, run | {"devices": 0})


# --- Memory -------------------------------------------------------------------------------------


@pytest.mark.problem("state_memory", share=0.2)
def test_state_bytes_of_70_b_parameters_are_1_12_tb(subject: Subject) -> None:
    mistakes = {
        "12 bytes a parameter: Adam has a 32-bit master copy besides two moments": 840e9,
        "18 bytes a parameter: gradients have 16 bits": 1260e9,
        "20 bytes a parameter: weights and gradients have 16 bits": 1400e9,
        "GiB where bytes are asked for": 1120e9 / GIB,
        "gigabytes where bytes are asked for": 1120,
        "bits where bytes are asked for": 8960e9,
        "the total over all devices": 4480e9,
        "everything sharded": 280e9,
    }
    state = {"parameters": 70e9, "sharding": "ddp", "world_size": 4}
    expect(subject, "state_bytes", state, 1.12e12, "bytes", mistakes)


@pytest.mark.problem("state_memory", share=0.65 / 4)
@pytest.mark.parametrize(
    ("sharding", "gigabytes"), [("ddp", 112), ("zero1", 38.5), ("zero2", 26.25), ("zero3", 14)]
)
def test_state_bytes_of_7_b_parameters_on_8_devices(
    subject: Subject, sharding: str, gigabytes: float
) -> None:
    mistakes = {
        "GiB where bytes are asked for": gigabytes * 1e9 / GIB,
        "gigabytes where bytes are asked for": gigabytes,
        "the total over all devices": gigabytes * 8e9,
        "nothing sharded": 112e9,
        "everything sharded": 14e9,
        "the optimizer sharded alone": 38.5e9,
        "the optimizer and the gradients sharded": 26.25e9,
    }
    state = {"parameters": 7e9, "sharding": sharding, "world_size": 8}
    expect(subject, "state_bytes", state, gigabytes * 1e9, "bytes on each device", mistakes)


@pytest.mark.problem("state_memory", share=0.15)
def test_state_bytes_on_one_device_are_16_a_parameter_and_bad_arguments_are_refused(
    subject: Subject,
) -> None:
    state = {"parameters": 1, "sharding": "zero1", "world_size": 1}
    for sharding in ("ddp", "zero1", "zero2", "zero3"):
        expect(subject, "state_bytes", state | {"sharding": sharding}, 16, "bytes")
    expect_refusals(subject, "state_bytes", state | {"sharding": "zero"}, state | {"world_size": 0})


# --- Communication ------------------------------------------------------------------------------


@pytest.mark.problem("bytes_moved", share=0.225)
def test_ring_all_reduce_bytes_of_1_gb_on_4_devices_are_1_5_gb(subject: Subject) -> None:
    mistakes = {
        "one of the two phases": 0.75e9,
        "a part as large as the whole: a device sends (n-1)/n of the tensor in each phase": 2e9,
        "what is sent and what is received together": 3e9,
        "the whole tensor in every step, or the total over all devices": 6e9,
        "bits where bytes are asked for": 12e9,
    }
    ring = {"size_bytes": 1e9, "world_size": 4}
    expect(subject, "ring_all_reduce_bytes", ring, 1.5e9, "bytes", mistakes)


@pytest.mark.problem("bytes_moved", share=0.2)
def test_ring_all_reduce_seconds_are_6_steps_on_4_devices(subject: Subject) -> None:
    ring = {"size_bytes": 1e9, "world_size": 4, "bytes_per_second": 50e9}
    mistakes = {
        "one of the two phases": 0.015,
        "a part as large as the whole": 0.04,
        "a bandwidth in bits per second": 0.24,
        "milliseconds where seconds are asked for": 30,
    }
    expect(subject, "ring_all_reduce_seconds", ring, 0.03, "seconds", mistakes)
    mistakes = {"no latency": 0.03, "the latency once: it is paid in every step": 0.031}
    slow = ring | {"latency_seconds": 0.001}
    expect(subject, "ring_all_reduce_seconds", slow, 0.036, "seconds", mistakes)


@pytest.mark.problem("bytes_moved", share=0.25)
def test_data_parallel_bytes_of_zero3_are_1_5_times_those_of_ddp(subject: Subject) -> None:
    model = {"parameters": 7e9, "world_size": 8}
    for sharding, wanted in {
        "ddp": 24.5e9,
        "zero1": 24.5e9,
        "zero2": 24.5e9,
        "zero3": 36.75e9,
    }.items():
        mistakes = {
            "elements where bytes are asked for": wanted / 2,
            "32 bits for each gradient and weight": wanted * 2,
            "no (n-1)/n": wanted * 8 / 7,
            "one all-gather too few or too many": (36.75e9 if wanted == 24.5e9 else 24.5e9),
        }
        arguments = model | {"sharding": sharding}
        expect(subject, "data_parallel_bytes", arguments, wanted, "bytes", mistakes)


@pytest.mark.problem("bytes_moved", share=0.175)
def test_tensor_parallel_bytes_are_those_of_4_all_reduces(subject: Subject) -> None:
    layer = {"batch": 2, "sequence": 2048, "hidden": 4096, "world_size": 8}
    wanted = 4 * (2 * 7 / 8) * (2 * 2 * 2048 * 4096)
    mistakes = {
        "2 all-reduces, the forward pass alone; or elements where bytes are asked for": wanted / 2,
        "an all-reduce that moves its tensor once: it moves it 2(n-1)/n times": wanted * 4 / 7,
        "32 bits for each element": wanted * 2,
    }
    expect(subject, "tensor_parallel_bytes", layer, wanted, "bytes", mistakes)


@pytest.mark.problem("bytes_moved", share=0.15)
def test_one_device_has_no_ring_all_reduce_bytes_and_no_data_parallel_bytes(
    subject: Subject,
) -> None:
    ring = {"size_bytes": 1e9, "world_size": 1}
    timed = ring | {"bytes_per_second": 1e9, "latency_seconds": 1.0}
    data = {"parameters": 1e9, "sharding": "zero3", "world_size": 1}
    layer = {"batch": 1, "sequence": 1, "hidden": 1, "world_size": 1}
    expect(subject, "ring_all_reduce_bytes", ring, 0, "bytes")
    expect(subject, "ring_all_reduce_seconds", timed, 0, "seconds")
    expect(subject, "data_parallel_bytes", data, 0, "bytes")
    expect(subject, "tensor_parallel_bytes", layer, 0, "bytes")
    expect_refusals(subject, "ring_all_reduce_bytes", ring | {"world_size": 0})
    expect_refusals(subject, "ring_all_reduce_seconds", timed | {"bytes_per_second": 0})
    expect_refusals(subject, "data_parallel_bytes", data | {"sharding": "fsdp"})


# --- Activations --------------------------------------------------------------------------------


@pytest.mark.problem("activation_memory", share=0.3)
def test_activation_bytes_of_a_layer_of_gpt_3_are_114_sbh(subject: Subject) -> None:
    mistakes = {
        "34 sbh, without the a s^2 of attention": 34 * SBH,
        "elements where bytes are asked for": 57 * SBH,
        "a single head": 34 * SBH + 5 * 2048**2,
    }
    expect(subject, "activation_bytes", GPT3, 114 * SBH, "bytes", mistakes)


@pytest.mark.problem("activation_memory", share=0.3)
def test_activation_bytes_with_tensor_parallelism_leave_10_sbh_whole(subject: Subject) -> None:
    split = GPT3 | {"tensor_parallel": 8}
    mistakes = {
        "everything shared out: tensor parallelism leaves 10 sbh whole": 14.25 * SBH,
        "no tensor parallelism": 114 * SBH,
    }
    expect(subject, "activation_bytes", split, (10 + 13) * SBH, "bytes", mistakes)
    mistakes = {"10 sbh left whole: sequence parallelism shares them out": 23 * SBH}
    sequence = split | {"sequence_parallel": True}
    expect(subject, "activation_bytes", sequence, 14.25 * SBH, "bytes", mistakes)


@pytest.mark.problem("activation_memory", share=0.25)
def test_activation_bytes_with_recomputation_are_34_or_2_sbh(subject: Subject) -> None:
    mistakes: Mistakes = {"no recomputation": 114 * SBH}
    for recomputation, wanted in {"selective": 34, "full": 2}.items():
        arguments = GPT3 | {"recomputation": recomputation}
        expect(subject, "activation_bytes", arguments, wanted * SBH, "bytes", mistakes)
    arguments = GPT3 | {"recomputation": "full", "tensor_parallel": 8}
    mistakes = {"the layer's input shared out, without sequence parallelism": SBH / 4}
    expect(subject, "activation_bytes", arguments, 2 * SBH, "bytes", mistakes)


@pytest.mark.problem("activation_memory", share=0.15)
def test_activation_bytes_refuse_what_cannot_be(subject: Subject) -> None:
    layer = {"batch": 1, "sequence": 1, "hidden": 1, "heads": 1}
    expect(subject, "activation_bytes", layer, 39, "bytes")
    bad = ({"heads": 0}, {"tensor_parallel": 0.5}, {"recomputation": "all"})
    expect_refusals(subject, "activation_bytes", *(layer | one for one in bad))


# --- Pipelines ----------------------------------------------------------------------------------


@pytest.mark.problem("pipeline_bubble", share=0.4)
def test_bubble_ratio_of_8_stages_is_22_percent_with_32_microbatches(subject: Subject) -> None:
    for microbatches, wanted in {32: 0.21875, 16: 0.4375}.items():
        mistakes = {
            "(p-1)/(m+p-1), a part of the total time": 7 / (microbatches + 7),
            "p/m: nobody waits for its own stage": 8 / microbatches,
            "a percentage where a fraction is asked for": 100 * wanted,
        }
        pipeline = {"stages": 8, "microbatches": microbatches}
        expect(subject, "bubble_ratio", pipeline, wanted, mistakes=mistakes)


@pytest.mark.problem("pipeline_bubble", share=0.45)
def test_microbatches_for_8_stages_and_5_percent_are_140(subject: Subject) -> None:
    mistakes: Mistakes = {
        "(p-1)/(m+p-1), a part of the total time": 133,
        "p/m: nobody waits for its own stage": 160,
        "a ratio taken for a percentage": 14000,
    }
    expect(subject, "microbatches_for", {"stages": 8, "ratio": 0.05}, 140, "", mistakes)
    mistakes = {"a number rounded down": 23, "a number that is not rounded up": 7 / 0.3}
    expect(subject, "microbatches_for", {"stages": 8, "ratio": 0.3}, 24, "", mistakes)


@pytest.mark.problem("pipeline_bubble", share=0.15)
def test_bubble_ratio_and_microbatches_for_one_stage(subject: Subject) -> None:
    expect(subject, "bubble_ratio", {"stages": 1, "microbatches": 3}, 0)
    expect(subject, "bubble_ratio", {"stages": 3, "microbatches": 1}, 2)
    expect(subject, "microbatches_for", {"stages": 1, "ratio": 0.1}, 1)
    expect(subject, "microbatches_for", {"stages": 3, "ratio": 8.0}, 1)
    expect_refusals(subject, "bubble_ratio", {"stages": 3, "microbatches": 0})
    expect_refusals(subject, "microbatches_for", {"stages": 3, "ratio": 0})


# --- What goes where, and how much at once ------------------------------------------------------


@pytest.mark.problem("placement", share=0.35)
def test_choose_parallelism_fills_a_node_before_it_crosses_to_the_next(subject: Subject) -> None:
    cluster = {"device_bytes": 80e9, "devices": 64, "devices_per_node": 8}
    for state_bytes, wanted, mistakes in (
        (48e9, (1, 1, 64), {"the whole node for tensor parallelism": (8, 1, 8)}),
        (
            112e9,  # of 7 B parameters
            (2, 1, 32),
            {
                "pipeline parallelism inside a node": (1, 2, 32),
                "the whole node for tensor parallelism, where less would do": (8, 1, 8),
            },
        ),
        (
            1120e9,  # of 70 B parameters
            (8, 2, 4),
            {
                "tensor parallelism beyond a node": (16, 1, 4),
                "tensor and pipeline in the wrong order": (2, 8, 4),
                "pipeline parallelism alone": (1, 16, 4),
            },
        ),
    ):
        arguments = {"state_bytes": state_bytes} | cluster
        expect(subject, "choose_parallelism", arguments, wanted, mistakes=mistakes)


@pytest.mark.problem("placement", share=0.25)
def test_gradient_noise_scale_of_two_batches(subject: Subject) -> None:
    # |G|^2 = 2 and S = 200: 2 + 200/50 = 6, and 2 + 200/200 = 3
    arguments = {
        "small_batch": 50,
        "small_squared_norm": 6,
        "large_batch": 200,
        "large_squared_norm": 3,
    }
    mistakes = {
        "the large batch's norm in place of |G|^2": 200 / 3,
        "|G|^2 over S, upside down": 0.01,
        "S, in place of S/|G|^2": 200,
    }
    expect(subject, "gradient_noise_scale", arguments, 100, "examples", mistakes)


@pytest.mark.problem("placement", share=0.25)
def test_critical_batch_size_of_two_runs(subject: Subject) -> None:
    # S_min = 1000 and E_min = 256000: 1000 + 256000/64 = 5000, and 1000 + 256000/256 = 2000
    arguments = {"small_batch": 64, "small_steps": 5000, "large_batch": 256, "large_steps": 2000}
    mistakes = {
        "the steps of the large batch in place of S_min": 128,
        "S_min over E_min, upside down": 1 / 256,
        "E_min, in place of E_min/S_min": 256000,
    }
    expect(subject, "critical_batch_size", arguments, 256, "examples", mistakes)


@pytest.mark.problem("placement", share=0.15)
def test_choose_parallelism_and_both_batch_sizes_refuse_what_cannot_be(subject: Subject) -> None:
    one = {"state_bytes": 1, "device_bytes": 1, "devices": 1, "devices_per_node": 1}
    norms = {
        "small_batch": 1,
        "small_squared_norm": 4,
        "large_batch": 2,
        "large_squared_norm": 3,
    }
    steps = {"small_batch": 1, "small_steps": 4, "large_batch": 2, "large_steps": 3}
    expect(subject, "choose_parallelism", one, (1, 1, 1))
    expect(subject, "gradient_noise_scale", norms, 1, "examples")
    expect(subject, "critical_batch_size", steps, 1, "examples")
    expect_refusals(subject, "choose_parallelism", one | {"devices_per_node": 2})
    expect_refusals(subject, "choose_parallelism", one | {"state_bytes": 2})
    expect_refusals(subject, "gradient_noise_scale", norms | {"large_squared_norm": 5})
    expect_refusals(subject, "critical_batch_size", steps | {"large_batch": 1})
