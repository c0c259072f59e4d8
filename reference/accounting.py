# Problems in this file (points in problems.toml):
#   6.1  training_compute   1 point
#   6.2  state_memory       2 points
#   6.3  bytes_moved        2 points
#   6.4  activation_memory  1 point
#   6.5  pipeline_bubble    1 point
#   6.6  placement          1 point
"""The arithmetic of scale: what a training run costs, worked out before it costs anything.

How long will it take, does it fit, what moves between the devices, how long do they idle, and how
large may a batch be? A formula of one line each answers, within a few percent. No rank is needed.

What holds for all of them
    Plain numbers go in, and one comes out (int or float; a relative error of 1e-9 is fine).

    Units: bytes, never bits; seconds, unless the name says days; FLOPs, where a multiply and an add
    are two; rates per second. Prefixes are those of the SI: 1 GB is 10**9 bytes, 1 TB 10**12, and
    70 B parameters are 70e9. Ratios are fractions: 40% is 0.4. Memory is what one device holds, and
    bytes moved are what one device sends (it receives as many); neither is a total over devices.

    ValueError for an argument that cannot be: a size, time or rate that is not above 0 (a latency
    may be 0); a count of devices, stages and so on that is no whole number from 1 on; an unknown
    word. What else a function refuses, it says.

Sources
    Kaplan et al. 2020, Scaling Laws for Neural Language Models, and Hoffmann et al. 2022, Training
    Compute-Optimal Large Language Models ("Chinchilla"): 6ND. Rajbhandari et al. 2020, ZeRO: Memory
    Optimizations Toward Training Trillion Parameter Models. Patarasuk, Yuan 2009, Bandwidth Optimal
    All-reduce Algorithms for Clusters of Workstations. Shoeybi et al. 2019, Megatron-LM: tensor
    parallelism. Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer
    Models. Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters
    Using Megatron-LM: pipelines, and what goes where. McCandlish et al. 2018, An Empirical Model of
    Large-Batch Training: batch sizes. Stanford CS336, Language Modeling from Scratch, the lectures
    on resource accounting and parallelism: the worked numbers.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
Recomputation = Literal["none", "selective", "full"]

# --- Compute ------------------------------------------------------------------------------------


def training_flops(parameters: float, tokens: float, recomputation: bool = False) -> float:
    """The compute of a training run, in FLOPs, over all devices.

    Every parameter is multiplied and added once for each token: 2 FLOPs in the forward pass. The
    backward pass takes twice that, for the gradients of the inputs and of the weights. Attention's
    own products, of tokens with tokens, are left out (Kaplan et al. 2020).

    70 B parameters and 15 T tokens: 6.3e24.

    Args:
        parameters: N, how many the model has.
        tokens: D, how many it is trained on.
        recomputation: whether all activations are computed again for the backward pass, which runs
            the forward pass a second time: about a third more compute.

    Raises:
        ValueError: as all functions here.
    """
    _check_positive(parameters=parameters, tokens=tokens)
    # BEGIN SOLUTION
    # dta-canary-5c1e7f0a9d3b
    forward = 2 * parameters * tokens
    backward = 2 * forward
    return forward + backward + (forward if recomputation else 0)
    # END SOLUTION


def training_days(flops: float, devices: int, peak_flops_per_second: float, mfu: float) -> float:
    """How long the compute takes, in days of 24 hours.

    6.3e24 FLOPs on one H100 (989e12 FLOPs per second in bfloat16) at 40%: about 500 years.

    Args:
        flops: of the whole run.
        devices: how many share it.
        peak_flops_per_second: what one of them could do at most.
        mfu: model FLOPs utilization, the part of the peak that is reached, above 0 and at most 1.

    Raises:
        ValueError: as all functions here; mfu is not a fraction.
    """
    _check_positive(flops=flops, peak_flops_per_second=peak_flops_per_second, mfu=mfu)
    _check_counts(devices=devices)
    _check_fraction("mfu", mfu)
    # BEGIN SOLUTION
    seconds = flops / (devices * peak_flops_per_second * mfu)
    return seconds / (24 * 60 * 60)
    # END SOLUTION


# --- Memory -------------------------------------------------------------------------------------


def state_bytes(parameters: float, sharding: Sharding, world_size: int) -> float:
    """The memory of parameters, gradients and optimizer, in bytes on each device.

    Mixed precision with Adam. For each parameter there are a 16-bit weight and a 16-bit gradient,
    and in the optimizer a 32-bit master copy of the weight and two 32-bit moments. What is sharded
    is cut into world_size equal parts, of which a device holds one (Rajbhandari et al. 2020):

        "ddp"    nothing
        "zero1"  the optimizer
        "zero2"  the optimizer and the gradients
        "zero3"  the optimizer, the gradients and the weights (FSDP does the same)

    70 B parameters with "ddp": 1.12 TB. 7 B on 8 devices: 112, 38.5, 26.25 and 14 GB.

    Args:
        parameters: how many the model has; with 1, the result is the bytes per parameter.
        sharding: one of the four.
        world_size: how many devices share.

    Raises:
        ValueError: as all functions here.
    """
    _check_positive(parameters=parameters)
    _check_word("sharding", sharding, get_args(Sharding))
    _check_counts(world_size=world_size)
    # BEGIN SOLUTION
    weight, gradient, optimizer = 2.0, 2.0, 4.0 + 4.0 + 4.0
    if sharding in ("zero1", "zero2", "zero3"):
        optimizer /= world_size
    if sharding in ("zero2", "zero3"):
        gradient /= world_size
    if sharding == "zero3":
        weight /= world_size
    return parameters * (weight + gradient + optimizer)
    # END SOLUTION


# --- Communication ------------------------------------------------------------------------------


def ring_all_reduce_bytes(size_bytes: float, world_size: int) -> float:
    """What each device sends in a ring all-reduce, in bytes.

    A reduce-scatter, then an all-gather. In each, a device sends all parts of the tensor but one,
    and a part is 1/world_size of it (Patarasuk and Yuan 2009).

    Args:
        size_bytes: of the tensor, the same on every device.
        world_size: how many devices there are. One has nothing to send.

    Raises:
        ValueError: as all functions here.
    """
    _check_positive(size_bytes=size_bytes)
    _check_counts(world_size=world_size)
    # BEGIN SOLUTION
    return 2 * (world_size - 1) / world_size * size_bytes
    # END SOLUTION


def ring_all_reduce_seconds(
    size_bytes: float, world_size: int, bytes_per_second: float, latency_seconds: float = 0.0
) -> float:
    """How long a ring all-reduce takes, in seconds.

    The parts go around the ring in steps, and in a step everybody sends one part at the same time:
    world_size - 1 steps for the reduce-scatter, and as many for the all-gather. A step takes the
    latency, and the bytes of a part at the bandwidth of the link.

    Args:
        size_bytes: of the tensor, the same on every device.
        world_size: how many devices there are.
        bytes_per_second: of each link, in one direction; both directions work at once.
        latency_seconds: what a message takes however small it is; 0 or more.

    Raises:
        ValueError: as all functions here.
    """
    _check_positive(size_bytes=size_bytes, bytes_per_second=bytes_per_second)
    _check_counts(world_size=world_size)
    _check_not_negative("latency_seconds", latency_seconds)
    # BEGIN SOLUTION
    steps = 2 * (world_size - 1)
    part = size_bytes / world_size
    return steps * (latency_seconds + part / bytes_per_second)
    # END SOLUTION


def data_parallel_bytes(parameters: float, sharding: Sharding, world_size: int) -> float:
    """What each device sends in one step of data-parallel training, in bytes.

    One forward and one backward pass, then the optimizer. Gradients and weights travel in 16 bits,
    by ring algorithms: a reduce-scatter or an all-gather moves (world_size - 1)/world_size of all
    of them (Rajbhandari et al. 2020, section 7):

        "ddp"    all-reduces the gradients
        "zero1"  reduce-scatters the gradients, and all-gathers the updated weights
        "zero2"  as "zero1"
        "zero3"  all-gathers the weights for the forward pass, again for the backward pass, since
                 nobody keeps them, and reduce-scatters the gradients: 1.5 times "ddp"

    Args:
        parameters: how many the model has.
        sharding: one of the four, as in ``state_bytes``.
        world_size: how many devices there are.

    Raises:
        ValueError: as all functions here.
    """
    _check_positive(parameters=parameters)
    _check_word("sharding", sharding, get_args(Sharding))
    _check_counts(world_size=world_size)
    # BEGIN SOLUTION
    one_pass = (world_size - 1) / world_size * 2 * parameters
    passes = 3 if sharding == "zero3" else 2
    return passes * one_pass
    # END SOLUTION


def tensor_parallel_bytes(batch: int, sequence: int, hidden: int, world_size: int) -> float:
    """What each device sends for one transformer layer and one step, in bytes.

    Tensor parallelism as Megatron does it (Shoeybi et al. 2019). Attention and the MLP each end in
    an all-reduce of the layer's output in the forward pass, and each begin with one, of the
    gradient of their input, in the backward pass: 4 ring all-reduces of a 16-bit tensor of shape
    (batch, sequence, hidden). Nothing is recomputed.

    Args:
        batch: sequences in a batch.
        sequence: tokens in a sequence.
        hidden: the size of a token's vector.
        world_size: how many devices share a layer.

    Raises:
        ValueError: as all functions here.
    """
    _check_counts(batch=batch, sequence=sequence, hidden=hidden, world_size=world_size)
    # BEGIN SOLUTION
    return 4 * ring_all_reduce_bytes(2 * batch * sequence * hidden, world_size)
    # END SOLUTION


# --- Activations --------------------------------------------------------------------------------


def activation_bytes(
    batch: int,
    sequence: int,
    hidden: int,
    heads: int,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recomputation: Recomputation = "none",
) -> float:
    """What one transformer layer keeps for its backward pass, in bytes on each device.

    With b sequences of s tokens, vectors of size h, a heads, 16-bit activations, and masks of
    dropout of one byte, attention keeps 11 sbh + 5 a s^2 b, the MLP 19 sbh, and the two layer norms
    2 sbh each: together sbh (34 + 5 a s / h) (Korthikanti et al. 2022, section 4).

    Tensor parallelism over t devices shares out what is inside attention and the MLP, 24 sbh and
    5 a s^2 b. It leaves 10 sbh whole on every device: what the layer norms keep, the inputs of
    attention and of the MLP, and the masks of the dropout behind them. Sequence parallelism shares
    out these too, along the sequence.

    Recomputation keeps less:
        "none"       everything is kept
        "selective"  what attention keeps of size s by s is computed again: 5 a s^2 b less
        "full"       only the input of the layer is kept, 2 sbh; it is whole on every device, and
                     shared out with sequence parallelism

    Args:
        batch, sequence, hidden, heads: b, s, h and a.
        tensor_parallel: t, how many devices share the layer.
        sequence_parallel: whether these t devices share out the sequence as well.
        recomputation: one of the three.

    Raises:
        ValueError: as all functions here.
    """
    _check_counts(batch=batch, sequence=sequence, hidden=hidden, heads=heads)
    _check_counts(tensor_parallel=tensor_parallel)
    _check_word("recomputation", recomputation, get_args(Recomputation))
    # BEGIN SOLUTION
    sbh = sequence * batch * hidden
    whole, shared = 10.0 * sbh, 24.0 * sbh
    if recomputation == "none":
        shared += 5 * heads * sequence**2 * batch
    elif recomputation == "full":
        whole, shared = 2.0 * sbh, 0.0
    if sequence_parallel:
        whole /= tensor_parallel
    return whole + shared / tensor_parallel
    # END SOLUTION


# --- Pipelines ----------------------------------------------------------------------------------


def bubble_ratio(stages: int, microbatches: int) -> float:
    """How long a pipeline idles, as a part of the time in which it works.

    In GPipe and in 1F1B alike, a device waits for stages - 1 micro-batches, on their way to it and
    back, and works on all of them (Narayanan et al. 2021). ``bubble_fraction`` is something else: a
    part of the total time, idle time included.

    8 stages: 32 micro-batches 0.22, 16 micro-batches 0.44.

    Args:
        stages: p, devices one after another.
        microbatches: m, the parts that a batch is cut into.

    Raises:
        ValueError: as all functions here.
    """
    _check_counts(stages=stages, microbatches=microbatches)
    # BEGIN SOLUTION
    return (stages - 1) / microbatches
    # END SOLUTION


def microbatches_for(stages: int, ratio: float) -> int:
    """The fewest micro-batches with a bubble ratio of at most ``ratio``: a whole number, 1 or more.

    8 stages and a ratio of 0.05: 140 micro-batches.

    Args:
        stages: p, devices one after another.
        ratio: the bubble's part of the time in which the pipeline works; it may be above 1.

    Raises:
        ValueError: as all functions here.
    """
    _check_counts(stages=stages)
    _check_positive(ratio=ratio)
    # BEGIN SOLUTION
    return max(1, math.ceil((stages - 1) / ratio))
    # END SOLUTION


# --- What goes where, and how much at once ------------------------------------------------------


def choose_parallelism(
    state_bytes: float, device_bytes: float, devices: int, devices_per_node: int
) -> tuple[int, int, int]:
    """How many devices share a layer, how many stages there are, and how many copies of the model.

    Which parallelism fits which link depends on how much it sends, how often, and whether it can
    wait:

        tensor    much, in every layer, and computing waits for it: the fastest link, in a node
        pipeline  little, between neighbours, once for each micro-batch: the links between nodes
        data      much, but once a step and beside the backward pass: whatever link is left

    So (Narayanan et al. 2021, and the CS336 lecture), until a copy of the model fits, and no more:
    1. tensor parallelism inside a node: the smallest divisor of devices_per_node with which it
       fits, or the whole node if it fits with none;
    2. then pipeline parallelism: the fewest stages with which it fits, where tensor times pipeline
       divides the number of devices;
    3. data parallelism with what is left.

    Args:
        state_bytes: of parameters, gradients and optimizer, which tensor and pipeline parallelism
            share out evenly. Activations are left out.
        device_bytes: the memory of one device; a copy fits where a device's part of the state is
            at most that.
        devices: how many there are, a multiple of devices_per_node.
        devices_per_node: how many of them a fast link connects.

    Returns:
        (tensor, pipeline, data), whose product is devices.

    Raises:
        ValueError: as all functions here; devices is no multiple of devices_per_node; the state
            does not fit into all of them together.
    """
    _check_positive(state_bytes=state_bytes, device_bytes=device_bytes)
    _check_counts(devices=devices, devices_per_node=devices_per_node)
    _check_cluster(state_bytes, device_bytes, devices, devices_per_node)
    # BEGIN SOLUTION
    divisors = [t for t in range(1, devices_per_node + 1) if devices_per_node % t == 0]
    tensor = next((t for t in divisors if state_bytes / t <= device_bytes), devices_per_node)
    pipeline = next(
        p
        for p in range(1, devices // tensor + 1)
        if devices % (tensor * p) == 0 and state_bytes / (tensor * p) <= device_bytes
    )
    return tensor, pipeline, devices // (tensor * pipeline)
    # END SOLUTION


def gradient_noise_scale(
    small_batch: int, small_squared_norm: float, large_batch: int, large_squared_norm: float
) -> float:
    """B_noise, the batch size at which a gradient is as much noise as signal, in examples.

    The gradient of a batch of B examples is the true gradient G with noise, and the mean of its
    squared norm is |G|^2 + S/B, where S is the trace of the covariance of one example's gradient.
    Two batch sizes give both |G|^2 and S, and B_noise is S/|G|^2 (McCandlish et al. 2018, appendix
    A.1). Data parallelism has two at hand: a device's batch, and that of all devices together.

    Args:
        small_batch: examples in the small batch.
        small_squared_norm: the mean of the squared norm of its gradient.
        large_batch, large_squared_norm: the same of the large batch.

    Raises:
        ValueError: as all functions here; large_batch is not above small_batch; with these norms,
            |G|^2 would not be above 0, or S below 0: they must be averaged over more steps.
    """
    _check_counts(small_batch=small_batch, large_batch=large_batch)
    _check_positive(small_squared_norm=small_squared_norm, large_squared_norm=large_squared_norm)
    _check_two_batches(small_batch, small_squared_norm, large_batch, large_squared_norm)
    # BEGIN SOLUTION
    noise = (small_squared_norm - large_squared_norm) / (1 / small_batch - 1 / large_batch)
    signal = (large_batch * large_squared_norm - small_batch * small_squared_norm) / (
        large_batch - small_batch
    )
    return noise / signal
    # END SOLUTION


def critical_batch_size(
    small_batch: int, small_steps: float, large_batch: int, large_steps: float
) -> float:
    """B_crit, the batch size up to which a larger one pays, in examples.

    To reach a given loss, training with batches of B examples takes S = S_min + E_min/B steps: at
    least S_min of them, however large the batch, and at least E_min examples, B S, however small.
    B_crit is E_min/S_min; there, both are twice their least (McCandlish et al. 2018, section 2.3).
    Two runs to the same loss tell both. ``gradient_noise_scale`` foretells it without any.

    Args:
        small_batch: examples in a batch of the first run.
        small_steps: how many steps it took.
        large_batch, large_steps: the same of the second run.

    Raises:
        ValueError: as all functions here; large_batch is not above small_batch; it took more steps
            than the small one, or no more examples.
    """
    _check_counts(small_batch=small_batch, large_batch=large_batch)
    _check_positive(small_steps=small_steps, large_steps=large_steps)
    _check_two_batches(small_batch, small_steps, large_batch, large_steps)
    # BEGIN SOLUTION
    least_examples = (small_steps - large_steps) / (1 / small_batch - 1 / large_batch)
    least_steps = small_steps - least_examples / small_batch
    return least_examples / least_steps
    # END SOLUTION


# --- Given: what is refused ---------------------------------------------------------------------


def _check_positive(**numbers: float) -> None:
    """Refuse a number that is not above 0, or not finite."""
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise ValueError(f"{name} is {number}, but must be above 0 and finite")


def _check_not_negative(name: str, number: float) -> None:
    """Refuse a number below 0, or one that is not finite."""
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} is {number}, but must be 0 or more, and finite")


def _check_counts(**numbers: float) -> None:
    """Refuse a number that nothing can be counted with."""
    for name, number in numbers.items():
        if not (1 <= number < math.inf and number == int(number)):
            raise ValueError(f"{name} is {number}, but must be a whole number, 1 or more")


def _check_fraction(name: str, number: float) -> None:
    """Refuse what is more than all."""
    if number > 1:
        raise ValueError(f"{name} is {number}, but must be a fraction, at most 1: 40% is 0.4")


def _check_word(name: str, word: str, words: tuple[str, ...]) -> None:
    """Refuse a word that the function does not know."""
    if word not in words:
        raise ValueError(f"{name} is {word!r}, but must be one of {', '.join(words)}")


def _check_cluster(
    state_bytes: float, device_bytes: float, devices: int, devices_per_node: int
) -> None:
    """Refuse a node that is not full, and a state that fits nowhere."""
    if devices % devices_per_node != 0:
        raise ValueError(
            f"devices is {devices}, but must be a multiple of devices_per_node, {devices_per_node}"
        )
    if state_bytes / devices > device_bytes:
        raise ValueError(
            f"state_bytes is {state_bytes}, which does not fit into {devices} devices of "
            f"{device_bytes} bytes"
        )


def _check_two_batches(small_batch: int, small: float, large_batch: int, large: float) -> None:
    """Refuse two measurements that no line a + b/batch, with a above and b not below 0, joins."""
    if small_batch >= large_batch:
        raise ValueError(
            f"large_batch is {large_batch}, but must be above small_batch, {small_batch}"
        )
    if small < large:
        raise ValueError(f"the large batch has {large}, but must not have more than the small one")
    if small_batch * small >= large_batch * large:
        raise ValueError(
            f"from {small} to {large} is too steep for batches of {small_batch} and {large_batch}: "
            "with an infinite batch nothing would be left"
        )
