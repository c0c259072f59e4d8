"""Mistakes in choose_parallelism, gradient_noise_scale and critical_batch_size."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

CHOICE = "return tensor, pipeline, devices // (tensor * pipeline)"

MUTANTS = [
    mutant(
        "placement",
        "choose_parallelism stretches tensor parallelism beyond a node",
        "The size of a node was left out.",
        """
        copy = next(n for n in range(1, devices + 1)
                    if devices % n == 0 and state_bytes / n <= device_bytes)
        return copy, 1, devices // copy
        """,
        ["parallelism"],
        function="choose_parallelism",
        told="tensor parallelism beyond a node",
    ),
    mutant(
        "placement",
        "choose_parallelism has pipelines alone",
        "They send least, so they were thought best.",
        """
        copy = next(n for n in range(1, devices + 1)
                    if devices % n == 0 and state_bytes / n <= device_bytes)
        return 1, copy, devices // copy
        """,
        ["parallelism"],
        function="choose_parallelism",
        told="pipeline parallelism alone",
    ),
    mutant(
        "placement",
        "choose_parallelism always takes a whole node for tensor parallelism",
        "The links are there anyway.",
        ("(t for t in divisors if state_bytes / t <= device_bytes)", "iter([devices_per_node])"),
        ["parallelism"],
        function="choose_parallelism",
        told="the whole node for tensor parallelism",
    ),
    mutant(
        "placement",
        "choose_parallelism gives tensor and pipeline in the wrong order",
        "p comes before t.",
        (CHOICE, "return pipeline, tensor, devices // (tensor * pipeline)"),
        ["parallelism"],
        function="choose_parallelism",
        told="tensor and pipeline in the wrong order",
    ),
    mutant(
        "placement",
        "choose_parallelism forgets to return how many copies there are",
        "The two sizes seemed enough.",
        (CHOICE, "return tensor, pipeline"),
        ["parallelism", "edges"],
        function="choose_parallelism",
        told="returns other than it should",
    ),
    mutant(
        "placement",
        "gradient_noise_scale takes the large batch's norm for the true one",
        "A large batch has almost no noise.",
        ("return noise / signal", "return noise / large_squared_norm"),
        ["noise_scale", "edges"],
        function="gradient_noise_scale",
        told="the large batch's norm in place of |G|^2",
    ),
    mutant(
        "placement",
        "gradient_noise_scale squares the norms once more",
        "They were taken for norms.",
        """
        small, large = small_squared_norm**2, large_squared_norm**2
        noise = (small - large) / (1 / small_batch - 1 / large_batch)
        signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
        return noise / signal
        """,
        ["noise_scale", "edges"],
        function="gradient_noise_scale",
        told="norms squared once more",
    ),
    mutant(
        "placement",
        "critical_batch_size is upside down",
        "Steps over examples.",
        ("return least_examples / least_steps", "return least_steps / least_examples"),
        ["critical_batch_size", "edges"],
        function="critical_batch_size",
        told="S_min over E_min, upside down",
    ),
    mutant(
        "placement",
        "critical_batch_size takes the steps of the large batch for the least",
        "It was thought large enough.",
        ("return least_examples / least_steps", "return least_examples / large_steps"),
        ["critical_batch_size", "edges"],
        function="critical_batch_size",
        told="the steps of the large batch in place of S_min",
    ),
    mutant(
        "placement",
        "choose_parallelism does not notice a state that fits nowhere",
        "The check of the cluster was thrown out as in the way.",
        ("_check_cluster(state_bytes, device_bytes, devices, devices_per_node)", "pass"),
        ["edges"],
        function="choose_parallelism",
        told="a state that fits nowhere must raise ValueError",
    ),
]
