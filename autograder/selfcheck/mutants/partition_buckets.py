"""Mistakes in partition_buckets, which DistributedDataParallel calls."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

CAP = "cap = bucket_cap_mb * 2**20"
FITS = "fits = buckets and held + parameter.nbytes <= cap"
DDP = "distributed_data_parallel"
LATE = (f"{DDP}/overlap", f"{DDP}/step_time")

MUTANTS = [
    mutant(
        "partition_buckets",
        "partition_buckets goes in the order of the forward pass",
        "The order of module.parameters() was kept.",
        ("reversed(trainable)", "trainable"),
        ["order", "cap", "oversize", "dtypes", "frozen", *LATE],
        told="the order of the forward pass",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets reverses the buckets only",
        "They were made in the order of the forward pass, and then turned round.",
        {
            "partition_buckets": """
            cap = bucket_cap_mb * 2**20
            buckets: list[list[Parameter]] = []
            held = 0
            for parameter in parameters:
                if not parameter.requires_grad:
                    continue
                fits = buckets and held + parameter.nbytes <= cap
                if not fits or buckets[-1][-1].dtype != parameter.dtype:
                    buckets.append([])
                    held = 0
                buckets[-1].append(parameter)
                held += parameter.nbytes
            return buckets[::-1]
            """
        },
        ["order", "cap", "oversize", "dtypes", "frozen"],
        told="made in the order of the forward pass, and then reversed",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets takes a MiB for 10^6 bytes",
        "A megabyte.",
        (CAP, "cap = bucket_cap_mb * 1e6"),
        ["cap"],
        told="a MiB of 10^6 bytes",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets has a cap of at least 1 MiB",
        "A smaller bucket seemed to make no sense.",
        (CAP, "cap = max(1.0, bucket_cap_mb) * 2**20"),
        ["order", "cap", "oversize", "dtypes", "frozen", *LATE],
        told="a cap of at least 1 MiB",
        also=["all gradients in one bucket"],
    ),
    mutant(
        "partition_buckets",
        "partition_buckets counts elements",
        "numel() was taken for bytes.",
        """
        cap = bucket_cap_mb * 2**20
        buckets: list[list[Parameter]] = []
        held = 0
        trainable = [parameter for parameter in parameters if parameter.requires_grad]
        for parameter in reversed(trainable):
            fits = buckets and held + parameter.numel() <= cap
            if not fits or buckets[-1][-1].dtype != parameter.dtype:
                buckets.append([])
                held = 0
            buckets[-1].append(parameter)
            held += parameter.numel()
        return buckets
        """,
        ["order", "cap", "oversize", "dtypes", "frozen", *LATE],
        told="elements being counted",
        also=["all gradients in one bucket", "a cap of at least 1 MiB"],
    ),
    mutant(
        "partition_buckets",
        "partition_buckets takes 4 bytes for every element",
        "All parameters were float32 so far.",
        """
        cap = bucket_cap_mb * 2**20
        buckets: list[list[Parameter]] = []
        held = 0
        trainable = [parameter for parameter in parameters if parameter.requires_grad]
        for parameter in reversed(trainable):
            nbytes = 4 * parameter.numel()
            fits = buckets and held + nbytes <= cap
            if not fits or buckets[-1][-1].dtype != parameter.dtype:
                buckets.append([])
                held = 0
            buckets[-1].append(parameter)
            held += nbytes
        return buckets
        """,
        ["dtypes"],
        told="4 bytes for an element of any dtype",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets closes a bucket when it holds more than the cap",
        "The parameter goes in first, and then it is checked.",
        (FITS, "fits = buckets and held <= cap"),
        ["order", "cap", "oversize", "dtypes", "frozen"],
        told="a bucket being closed only when it holds more than the cap",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets never fills a bucket to the last byte",
        "< in place of <=.",
        (FITS, FITS.replace("<=", "<")),
        ["cap"],
        told="a bucket being closed when it holds just the cap",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets puts several dtypes into one bucket",
        "There was only one dtype so far.",
        ("if not fits or buckets[-1][-1].dtype != parameter.dtype:", "if not fits:"),
        ["dtypes", f"{DDP}/mixed_dtypes"],
        told="more than one dtype",
        also=("gradients that travel in a wider dtype",),
    ),
    mutant(
        "partition_buckets",
        "partition_buckets takes in frozen parameters",
        "All that module.parameters() gives.",
        (
            "[parameter for parameter in parameters if parameter.requires_grad]",
            "list(parameters)",
        ),
        ["frozen", "few", f"{DDP}/frozen", f"{DDP}/calls_and_bytes"],
        told="is not trainable",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets begins with an empty bucket",
        "The loop was easier so; if the first parameter is too large, the bucket stays empty.",
        """
        cap = bucket_cap_mb * 2**20
        buckets: list[list[Parameter]] = [[]]
        held = 0
        for parameter in reversed([one for one in parameters if one.requires_grad]):
            other = buckets[-1] and buckets[-1][-1].dtype != parameter.dtype
            if other or held + parameter.nbytes > cap:
                buckets.append([])
                held = 0
            buckets[-1].append(parameter)
            held += parameter.nbytes
        return buckets
        """,
        ["oversize", "few"],
        told="an empty bucket",
    ),
    mutant(
        "partition_buckets",
        "partition_buckets makes a bucket of every parameter",
        "So that each can be sent at once.",
        """
        return [[one] for one in reversed(list(parameters)) if one.requires_grad]
        """,
        ["order", "cap", "oversize", "dtypes", "frozen"],
        told="a bucket for every parameter",
    ),
]
