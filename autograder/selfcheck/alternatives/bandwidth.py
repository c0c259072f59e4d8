"""Right solutions of part 2 that are not the reference's."""

from __future__ import annotations

from autograder.selfcheck.variant import alternative

ALTERNATIVES = [
    alternative(
        "bus_bandwidth",
        "the bus factors as a table",
        "One entry for each operation, as in the docstring.",
        {
            "bus_factor": """
            n = world_size
            one_phase = 1 - 1 / n
            factors = dict.fromkeys(TORCH, one_phase)
            factors |= {"all_reduce": 2 * one_phase, "broadcast": 1, "reduce": 1}
            return factors[op]
            """,
            "effective_bandwidth": """
            algorithm = size_bytes / seconds
            return algorithm * bus_factor(op, world_size)
            """,
        },
    ),
    alternative(
        "bus_bandwidth",
        "the bytes that are sent, over the time of all ranks together",
        "The lecture's formula: 2 (n-1) S sent in all, over n times the duration.",
        {
            "effective_bandwidth": """
            sent = size_bytes * (world_size - 1)
            if op == "all_reduce":
                sent *= 2
            if op in ("broadcast", "reduce"):
                sent = size_bytes * world_size
            return sent / (world_size * seconds)
            """
        },
    ),
    alternative(
        "time_op",
        "the median by sorting, and lists of starts and stops",
        "No statistics module; everything is kept, and worked out at the end.",
        """
        starts, stops = [], []
        for i in range(warmup + iterations):
            synchronize()
            barrier()
            starts.append(clock())
            operation()
            synchronize()
            stops.append(clock())
        took = [stop - start for start, stop in zip(starts, stops)][warmup:]
        device = group_device(group)
        mine = torch.tensor(took, dtype=torch.float64, device=device)
        n = dist.get_world_size(group)
        everybodys = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(everybodys, mine, group=group)
        slowest = sorted(max(one[i].item() for one in everybodys) for i in range(iterations))
        return slowest[iterations // 2]
        """,
    ),
    alternative(
        "time_op",
        "every iteration's maximum at once, and torch's median in float32",
        "The all_reduce is in the loop, outside the clock; a while loop.",
        """
        done = 0
        while done < warmup:
            operation()
            done += 1
        synchronize()
        results = torch.zeros(iterations, device=group_device(group))
        for i in range(iterations):
            synchronize()
            barrier()
            before = clock()
            operation()
            synchronize()
            after = clock()
            one = torch.tensor([after - before], device=results.device)
            dist.all_reduce(one, op=dist.ReduceOp.MAX, group=group)
            results[i] = one[0]
        return float(results.median())
        """,
    ),
    alternative(
        "time_op",
        "a helper that times one call, a closing barrier outside the clock, and numpy",
        "Warm-up and measurement share the helper; all_gather_object brings the times together.",
        """
        def once():
            synchronize()
            barrier()
            start = clock()
            operation()
            synchronize()
            stop = clock()
            barrier()
            return stop - start

        import numpy as np

        for _ in range(warmup):
            once()
        mine = [once() for _ in range(iterations)]
        collected = [None] * dist.get_world_size(group)
        dist.all_gather_object(collected, mine, group=group)
        return float(np.median(np.max(np.array(collected), axis=0)))
        """,
    ),
    alternative(
        "time_op",
        "the garbage collector is off, and the first warm-up is synchronized",
        "As timeit does it, inside try and finally.",
        """
        import gc

        for _ in range(warmup):
            operation()
            synchronize()
        was_on = gc.isenabled()
        gc.disable()
        try:
            times = []
            while len(times) < iterations:
                synchronize()
                barrier()
                times.append(-clock())
                operation()
                synchronize()
                times[-1] += clock()
        finally:
            if was_on:
                gc.enable()
        times = torch.tensor(times, dtype=torch.float64, device=group_device(group))
        dist.all_reduce(times, op=dist.ReduceOp.MAX, group=group)
        return float(torch.quantile(times, 0.5))
        """,
    ),
    alternative(
        "measure",
        "measure with a function of its own, and S from the tensors",
        "S is the largest of what it is called with; for scatter and gather n times a part.",
        """
        n = dist.get_world_size(group)
        run = collectives[op]

        def call():
            run(*arguments, group=group)

        took = time_op(call, group=group, **timing)
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        whole = max(one.numel() * one.element_size() for one in tensors)
        if op in ("scatter", "gather"):
            whole = n * tensors[0].numel() * tensors[0].element_size()
        return Measurement(
            op=op, dtype=dtype, world_size=n, size_bytes=whole, seconds=took,
            bandwidth=effective_bandwidth(op, whole, n, took),
        )
        """,
    ),
    alternative(
        "sweep",
        "sweep as a comprehension over rounded sizes",
        "Rounded in bytes: down to a multiple of n elements, and up to one.",
        """
        unit = dtype.itemsize * dist.get_world_size(group)
        rounded = [size - size % unit or unit for size in sizes]
        options = dict(timing, collectives=collectives, group=group)
        return [measure(op, size // dtype.itemsize, dtype, **options) for size in rounded]
        """,
    ),
]
