"""Right solutions of part 6 that are not the reference's."""

from __future__ import annotations

from autograder.selfcheck.variant import alternative

EXACT = """
from fractions import Fraction


def line(x0, y0, x1, y1):
    slope = Fraction(y1 - y0) / (x1 - x0)
    return Fraction(y0) - slope * x0, slope
"""

ALTERNATIVES = [
    alternative(
        "training_compute",
        "training_flops in whole numbers, training_days by way of the ideal time",
        "Factors that one reads in papers, 6 and 8; and integers, which never round.",
        {
            "training_flops": """
            per_parameter_and_token = 8 if recomputation else 6
            return per_parameter_and_token * int(parameters) * int(tokens)
            """,
            "training_days": """
            ideal_hours = flops / peak_flops_per_second / devices / 3600
            return ideal_hours / 24 / mfu
            """,
        },
    ),
    alternative(
        "state_memory",
        "state_bytes from a table, as a fraction",
        "The four formulas as the paper prints them.",
        {
            "state_bytes": """
            from fractions import Fraction
            whole, shared = {
                "ddp": (16, 0), "zero1": (4, 12), "zero2": (2, 14), "zero3": (0, 16)
            }[sharding]
            return (whole + Fraction(shared, world_size)) * Fraction(parameters)
            """
        },
    ),
    alternative(
        "bytes_moved",
        "the ring, step by step",
        "Loops over the steps add up what is sent, as the algorithm does.",
        {
            "ring_all_reduce_bytes": """
            part = size_bytes / world_size
            sent = 0
            for phase in ("reduce-scatter", "all-gather"):
                for step in range(world_size - 1):
                    sent += part
            return sent
            """,
            "ring_all_reduce_seconds": """
            seconds = 0.0
            for step in range(2 * (world_size - 1)):
                seconds += latency_seconds
                seconds += size_bytes / world_size / bytes_per_second
            return seconds
            """,
            "data_parallel_bytes": """
            all_reduce = ring_all_reduce_bytes(2 * parameters, world_size)
            return all_reduce * 1.5 if sharding == "zero3" else all_reduce
            """,
            "tensor_parallel_bytes": """
            elements = batch * sequence * hidden
            return 16 * elements - 16 * elements / world_size
            """,
        },
    ),
    alternative(
        "activation_memory",
        "activation_bytes piece by piece",
        "Table 2 of the paper, a case for each of its lines.",
        {
            "activation_bytes": """
            s, b, h, a, t = sequence, batch, hidden, heads, tensor_parallel
            if recomputation == "full":
                return 2 * s * b * h / t if sequence_parallel else 2 * s * b * h
            attention = 0 if recomputation == "selective" else 5 * a * s / (h * t)
            if sequence_parallel:
                return s * b * h * (34 / t + attention)
            return s * b * h * (10 + 24 / t + attention)
            """
        },
    ),
    alternative(
        "pipeline_bubble",
        "microbatches_for by trying, with bubble_ratio as a fraction",
        "Counting up until the bubble is small enough.",
        {
            "bubble_ratio": """
            from fractions import Fraction
            return Fraction(stages - 1, microbatches)
            """,
            "microbatches_for": """
            microbatches = 1
            while bubble_ratio(stages, microbatches) > ratio:
                microbatches += 1
            return microbatches
            """,
        },
    ),
    alternative(
        "placement",
        "choose_parallelism by loops; batch sizes from a line through two points, in fractions",
        "Noise scale and critical batch size are slope over intercept, in 1/B.",
        {
            "choose_parallelism": """
            tensor, pipeline = 1, 1
            while tensor < devices_per_node and (
                devices_per_node % tensor or state_bytes > tensor * device_bytes
            ):
                tensor += 1
            while devices % (tensor * pipeline) or state_bytes > tensor * pipeline * device_bytes:
                pipeline += 1
            return [tensor, pipeline, devices // tensor // pipeline]
            """,
            "gradient_noise_scale": """
            from . import exact
            signal, noise = exact.line(
                exact.Fraction(1, small_batch), exact.Fraction(small_squared_norm),
                exact.Fraction(1, large_batch), exact.Fraction(large_squared_norm),
            )
            return noise / signal
            """,
            "critical_batch_size": """
            small_examples, large_examples = small_batch * small_steps, large_batch * large_steps
            least_steps = (large_examples - small_examples) / (large_batch - small_batch)
            return (small_examples - small_batch * least_steps) / least_steps
            """,
        },
        modules={"exact": EXACT},
    ),
]
