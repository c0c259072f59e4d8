"""Mistakes in DistributedDataParallel."""

from __future__ import annotations

from autograder.selfcheck.variant import Mutant, Patch, mutant

ID = "distributed_data_parallel"
CLASS = "DistributedDataParallel"
INIT, FINISH, READY, ISSUE, NO_SYNC = (
    f"{CLASS}.{name}"
    for name in (
        "__init__",
        "finish_gradient_synchronization",
        "_gradient_is_ready",
        "_issue_next_bucket",
        "no_sync",
    )
)
REDUCE = "dist.all_reduce(gradients, ReduceOp.AVG, group=self.group, async_op=True)"
BACK = "unflatten_gradients(gradients, bucket)"
PARTITION = "partition_buckets(module.parameters(), bucket_cap_mb)"

LATE = ("overlap", "step_time")
# Every check that looks at means over several ranks.
MEANS = (
    *("trains_as_one_process", "gradients", "accumulation", "several_backwards"),
    *("unused_on_a_rank", "unused_in_turns", "mixed_dtypes", "oversize", "frozen", "tied"),
    *("unused_everywhere", "sub_group", "interrupted", "calls_and_bytes", *LATE),
)


def mistake(
    name: str,
    story: str,
    function: str,
    patch: Patch,
    loses: tuple[str, ...] | list[str],
    told: str = "",
    also: tuple[str, ...] = (),
) -> Mutant:
    """A mutant in which one method is changed."""
    return mutant(ID, name, story, {function: patch}, loses, told=told, also=also)


MUTANTS = [
    mistake(
        "DDP never issues a bucket that has an unused parameter",
        "The hook of that parameter never comes, and finish waits for what was issued only.",
        FINISH,
        """
        for bucket, (gradients, work) in zip(self._buckets, self._issued):
            work.wait()
            unflatten_gradients(gradients, bucket)
        self._expect_gradients()
        """,
        ["unused_on_a_rank", "unused_in_turns", "unused_everywhere"],
        told="a bucket that waits for a gradient which never comes",
        also=("nothing having been communicated",),
    ),
    mutant(
        ID,
        "DDP issues buckets in the order in which they are complete",
        "Which is another order on every rank that has not used a parameter.",
        {
            READY: """
            if not self._synchronizes:
                return
            self._missing[index] -= 1
            if not self._missing[index]:
                gradients = flatten_gradients(self._buckets[index])
                work = dist.all_reduce(gradients, ReduceOp.AVG, self.group, async_op=True)
                self._issued.append((index, gradients, work))
            """,
            FINISH: """
            complete = [index for index, _, _ in self._issued]
            for index, bucket in enumerate(self._buckets):
                if index not in complete:
                    gradients = flatten_gradients(bucket)
                    work = dist.all_reduce(gradients, ReduceOp.AVG, self.group, async_op=True)
                    self._issued.append((index, gradients, work))
            for index, gradients, work in self._issued:
                work.wait()
                unflatten_gradients(gradients, self._buckets[index])
            self._expect_gradients()
            """,
        },
        ["unused_on_a_rank", "unused_in_turns"],
        told="issue their buckets in different orders",
    ),
    mutant(
        ID,
        "DDP leaves None gradients out of a bucket",
        "They were skipped where the bucket is flattened, so ranks send other sizes.",
        {
            ISSUE: """
            bucket = self._buckets[len(self._issued)]
            bucket = [p for p in bucket if p.grad is not None] or bucket
            gradients = flatten_gradients(bucket)
            work = dist.all_reduce(gradients, ReduceOp.AVG, group=self.group, async_op=True)
            self._issued.append((bucket, gradients, work))
            """,
            FINISH: """
            while len(self._issued) < len(self._buckets):
                self._issue_next_bucket()
            for bucket, gradients, work in self._issued:
                work.wait()
                unflatten_gradients(gradients, bucket)
            self._expect_gradients()
            """,
        },
        ["unused_on_a_rank", "unused_in_turns"],
        told="a bucket without the gradients that were not used here",
    ),
    mistake(
        "DDP averages the parameters",
        "A post-accumulate hook is given the parameter, and it was taken for the gradient.",
        ISSUE,
        """
        bucket = self._buckets[len(self._issued)]
        gradients = torch.cat([p.detach().flatten() for p in bucket])
        work = dist.all_reduce(gradients, ReduceOp.AVG, group=self.group, async_op=True)
        self._issued.append((gradients, work))
        """,
        [*MEANS, "one_rank"],
        told="the mean of the parameters",
    ),
    mistake(
        "DDP adds and does not divide",
        "The sum was averaged nowhere.",
        ISSUE,
        (REDUCE, REDUCE.replace("AVG", "SUM")),
        MEANS,
        told="a sum where a mean was asked for",
        also=("sums of gradients",),
    ),
    mistake(
        "DDP divides by 2",
        "It was tried on two ranks.",
        FINISH,
        (BACK, "unflatten_gradients(gradients * dist.get_world_size(self.group) / 2, bucket)"),
        [one for one in MEANS if one not in ("interrupted", "calls_and_bytes")] + ["one_rank"],
        told="the sum divided by 2",
        also=("a division by 2",),
    ),
    mistake(
        "DDP divides by the number of all ranks",
        "get_world_size() without the group.",
        ISSUE,
        (
            REDUCE,
            "dist.all_reduce(gradients.div_(dist.get_world_size()), group=self.group, "
            "async_op=True)",
        ),
        ["sub_group"],
        told="the number of all ranks being taken for that of the group",
    ),
    mistake(
        "DDP forgets the group",
        "The default group was all there was in the tests.",
        ISSUE,
        (REDUCE, REDUCE.replace("group=self.group, ", "")),
        ["sub_group"],
        told="rank 1",
    ),
    mistake(
        "DDP does not broadcast at construction",
        "All ranks have the same seed, usually.",
        INIT,
        ("        broadcast_parameters(module, first, group)\n", ""),
        ["construction", "trains_as_one_process"],
        told="did not begin with the same parameters",
    ),
    mistake(
        "DDP broadcasts from rank 0, also in a group without it",
        "Rank 0 is in every group, usually.",
        INIT,
        ("broadcast_parameters(module, first, group)", "broadcast_parameters(module, 0, group)"),
        ["construction"],
    ),
    mistake(
        "DDP issues every bucket after backward",
        "All in finish, which is where it is waited for.",
        READY,
        """
        if self._synchronizes:
            self._missing[index] -= 1
        """,
        LATE,
        told="issued after backward",
    ),
    mistake(
        "DDP waits for each bucket in its hook",
        "async_op was forgotten.",
        ISSUE,
        """
        gradients = flatten_gradients(self._buckets[len(self._issued)])
        dist.all_reduce(gradients, ReduceOp.AVG, group=self.group)
        self._issued.append((gradients, torch.futures.Future()))
        self._issued[-1][1].set_result(None)
        """,
        LATE,
        told="async_op=True",
    ),
    mistake(
        "DDP waits for a bucket before it issues the next",
        "So that there is never more than one under way.",
        ISSUE,
        (
            "gradients = flatten",
            "if self._issued:\n            self._issued[-1][1].wait()\n        gradients = flatten",
        ),
        ["overlap"],
        told="while backward has gradients yet to work out",
    ),
    mistake(
        "DDP makes a bucket of every parameter",
        "The class calls itself bucketed, and never buckets.",
        INIT,
        (PARTITION, f"[[one] for some in {PARTITION} for one in some]"),
        ["calls_and_bytes"],
        told="one for each of the",
    ),
    mistake(
        "DDP has one bucket whatever the cap",
        "The argument was not passed on.",
        INIT,
        (PARTITION, "partition_buckets(module.parameters())"),
        ["calls_and_bytes", "tied", *LATE],
        told="all gradients in one bucket",
    ),
    mistake(
        "DDP communicates inside no_sync",
        "Every micro-batch is averaged, which gives the same numbers.",
        NO_SYNC,
        """
        yield
        self.finish_gradient_synchronization()
        """,
        ["calls_and_bytes"],
        told="inside no_sync",
    ),
    mistake(
        "DDP begins every forward pass with gradients of zero",
        "What was left from the step before was always in the way.",
        f"{CLASS}.forward",
        ("return self.module", "self.zero_grad()\n        return self.module"),
        ["accumulation", "several_backwards", "unused_on_a_rank", "calls_and_bytes"],
        told="only the last micro-batch having been averaged",
        also=("a buffer or a result that was kept",),
    ),
    mistake(
        "DDP sends as ever inside no_sync",
        "A context manager that only yields; then the buckets of the first micro-batch are sent.",
        NO_SYNC,
        "yield",
        ["accumulation", "unused_on_a_rank", "calls_and_bytes"],
        told="only the first micro-batch having been averaged",
    ),
    mistake(
        "DDP sends a bucket before its last gradient is there",
        "A hook on the tensor comes before the gradient is in p.grad.",
        INIT,
        ("register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]", "register_hook("),
        [*MEANS, "one_rank"],
        told="a bucket that was sent before this gradient was there",
        also=("a bucket that was sent before the gradient of the last micro-batch was there",),
    ),
    mistake(
        "DDP stays in no_sync where an exception passes",
        "Without try and finally.",
        NO_SYNC,
        """
        self._synchronizes = False
        yield
        self._synchronizes = True
        """,
        ["interrupted"],
        told="no_sync not being ended where an exception passes",
    ),
    mistake(
        "DDP keeps the handles of the step before",
        "The list was never emptied.",
        FINISH,
        ("        self._expect_gradients()\n", ""),
        [*MEANS, "one_rank"],
        told="a buffer or a result that was kept from one call to the next",
    ),
    mistake(
        "DDP counts gradients down once and for all",
        "The handles are cleared, the counters are not; from the second step on nothing overlaps.",
        f"{CLASS}._expect_gradients",
        (
            "self._missing = [len(bucket) for bucket in self._buckets]",
            "self._missing = self._missing or [len(bucket) for bucket in self._buckets]",
        ),
        ["unused_on_a_rank", "unused_in_turns", *LATE],
        told="issued after backward",
        also=("a bucket that was sent before this gradient was there",),
    ),
    mistake(
        "DDP leaves the means in its buckets",
        "What was reduced was a flat copy, and nothing came back.",
        FINISH,
        (f"            {BACK}\n", ""),
        MEANS,
        told="a result that stayed in a copy",
        also=("every rank training by itself", "a gradient which never comes"),
    ),
    mistake(
        "DDP leaves an operation unfinished",
        "What tells the others what was used is sent, and its handle forgotten.",
        FINISH,
        (
            "        self._expect_gradients()\n",
            "        self._expect_gradients()\n"
            "        dist.all_reduce(torch.zeros(1).byte(), group=self.group, async_op=True)\n",
        ),
        ["overlap"],
        told="has not waited for an operation",
    ),
    mistake(
        "DDP has a hook for every parameter",
        "Frozen ones as well, which can have none.",
        INIT,
        (
            "        for index, bucket",
            "        for parameter in module.parameters():\n"
            "            parameter.register_post_accumulate_grad_hook(lambda _: None)\n"
            "        for index, bucket",
        ),
        ["frozen", "calls_and_bytes"],
        told="cannot register a hook on a tensor that doesn't require gradient",
    ),
    mistake(
        "DDP puts tied weights into two buckets",
        "By their names, of which they have two.",
        INIT,
        (
            PARTITION,
            "partition_buckets((p for _, p in module.named_parameters(remove_duplicate=False)), "
            "bucket_cap_mb)",
        ),
        ["tied"],
        told="bytes are communicated",
    ),
    mutant(
        ID,
        "DDP has room for a cap in every bucket, and no more",
        "A parameter that is larger does not fit in.",
        {
            INIT: (
                "        first, *_ =",
                "        self._room = int(bucket_cap_mb * 2**20)\n        first, *_ =",
            ),
            ISSUE: (
                "work = dist",
                "if gradients.nbytes > self._room:\n"
                '            raise RuntimeError("a gradient does not fit into its bucket")\n'
                "        work = dist",
            ),
        },
        ["oversize"],
        told="a gradient does not fit into its bucket",
    ),
    mistake(
        "DDP communicates nothing narrower than float32",
        "Half precision seemed dangerous for a sum.",
        ISSUE,
        (
            "work = dist",
            "if gradients.dtype == torch.bfloat16:\n"
            "            gradients = gradients.float()\n"
            "        work = dist",
        ),
        ["mixed_dtypes"],
        told="travel in a wider dtype",
    ),
    mistake(
        "DDP does nothing for one rank, not even what finish needs",
        "An early return in the constructor.",
        INIT,
        (
            "        first, *_ =",
            "        if dist.get_world_size(group) == 1:\n            return\n        first, *_ =",
        ),
        ["one_rank", "trains_as_one_process"],
        told="AttributeError",
    ),
    mistake(
        "DDP divides by the number of ranks that used a parameter",
        "The others have nothing to say about it.",
        FINISH,
        """
        parameters = [parameter for bucket in self._buckets for parameter in bucket]
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
        while len(self._issued) < len(self._buckets):
            self._issue_next_bucket()
        dist.all_reduce(used, group=self.group)
        for bucket, (gradients, work) in zip(self._buckets, self._issued, strict=True):
            work.wait()
            unflatten_gradients(gradients, bucket)
        for parameter, users in zip(parameters, used.tolist()):
            parameter.grad *= dist.get_world_size(self.group) / users if users else float("nan")
        self._expect_gradients()
        """,
        ["unused_on_a_rank", "unused_in_turns", "unused_everywhere"],
        told="a mean over the ranks that used the parameter",
    ),
    mistake(
        "DDP wraps torch's own",
        "It does all of this already.",
        INIT,
        (
            "        first, *_ =",
            "        nn.parallel.DistributedDataParallel(module)\n        first, *_ =",
        ),
        ["*"],
        told="may not be used here",
    ),
]
