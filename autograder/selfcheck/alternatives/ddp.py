"""Right solutions of part 3 that are not the reference's."""

from __future__ import annotations

from autograder.selfcheck.variant import alternative

DDP = "distributed_data_parallel"
INIT, FINISH, READY, EXPECT, ISSUE, NO_SYNC = (
    f"DistributedDataParallel.{name}"
    for name in (
        "__init__",
        "finish_gradient_synchronization",
        "_gradient_is_ready",
        "_expect_gradients",
        "_issue_next_bucket",
        "no_sync",
    )
)

ALTERNATIVES = [
    alternative(
        "shard_batch",
        "torch's tensor_split",
        "It has the same rule for the remainder.",
        "return torch.tensor_split(batch, world_size)[rank].clone()",
    ),
    alternative(
        "shard_batch",
        "sizes as a list, and an index of rows",
        "All sizes first; then the rows are picked by their numbers.",
        """
        sizes = [len(batch) // world_size] * world_size
        for i in range(len(batch) % world_size):
            sizes[i] += 1
        rows = torch.arange(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return batch.index_select(0, rows)
        """,
    ),
    alternative(
        "broadcast_parameters",
        "one flat message for each dtype",
        "Few long messages in place of many short ones, by way of p.data.",
        """
        tensors = [p.data for p in module.parameters()] + [b.data for b in module.buffers()]
        for dtype in {tensor.dtype: None for tensor in tensors}:
            some = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            dist.broadcast(flat, src=src, group=group)
            at = 0
            for tensor in some:
                tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
                at += tensor.numel()
        """,
    ),
    alternative(
        "broadcast_parameters",
        "everything at once, asynchronously, by name",
        "All broadcasts are issued, then all are waited for.",
        """
        held = dict(module.named_parameters())
        held.update(module.named_buffers())
        works = [dist.broadcast(held[n], src, group=group, async_op=True) for n in sorted(held)]
        for work in works:
            work.wait()
        """,
    ),
    alternative(
        "all_reduce_gradients",
        "in place, sum and division, zeros made beforehand",
        "The gradients themselves are sent; flat with torch's own helpers.",
        """
        world_size = dist.get_world_size(group)
        by_dtype = {}
        for p in parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            by_dtype.setdefault(p.dtype, []).append(p.grad)
        if not flat:
            for p in parameters:
                all_reduce(p.grad, op=dist.ReduceOp.SUM, group=group)
                p.grad /= world_size
            return
        from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

        for grads in by_dtype.values():
            buffer = _flatten_dense_tensors(grads)
            buffer.div_(world_size)
            all_reduce(buffer, op=dist.ReduceOp.SUM, group=group)
            for grad, new in zip(grads, _unflatten_dense_tensors(buffer, grads)):
                grad.copy_(new)
        """,
    ),
    alternative(
        "all_reduce_gradients",
        "what is used nowhere stays None",
        "The ranks tell one another first what they have used, in a byte for each parameter.",
        """
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
        all_reduce(used, op=ReduceOp.MAX, group=group)
        parameters = [p for p, anywhere in zip(parameters, used.tolist()) if anywhere]
        messages = [[p] for p in parameters]
        if flat:
            dtypes = dict.fromkeys(p.dtype for p in parameters)
            messages = [[p for p in parameters if p.dtype == dtype] for dtype in dtypes]
        for message in messages:
            mean = flatten_gradients(message)
            all_reduce(mean, op=ReduceOp.AVG, group=group)
            for p, part in zip(message, mean.split([p.numel() for p in message])):
                p.grad = part.view_as(p).clone()
        """,
    ),
    alternative(
        "partition_buckets",
        "a list that is closed and begun anew",
        "The open bucket is a variable of its own; the cap is in whole bytes.",
        """
        limit = int(bucket_cap_mb * 1024 * 1024)
        done, current, size = [], [], 0
        for p in list(parameters)[::-1]:
            if not p.requires_grad:
                continue
            more = p.numel() * p.element_size()
            if current and (size + more > limit or current[0].dtype is not p.dtype):
                done.append(current)
                current, size = [], 0
            current.append(p)
            size += more
        return done + [current] if current else done
        """,
    ),
    alternative(
        DDP,
        "torch's small first bucket",
        "The last parameter is a bucket of its own, so that communication begins early.",
        {
            INIT: (
                "self._buckets = partition_buckets(module.parameters(), bucket_cap_mb)",
                "first, *others = partition_buckets(module.parameters(), bucket_cap_mb)\n"
                "        small = [bucket for bucket in (first[:1], first[1:]) if bucket]\n"
                "        self._buckets = [*small, *others]\n"
                "        first, *_ = dist.get_process_group_ranks(group)",
            )
        },
    ),
    alternative(
        DDP,
        "an open bucket for each dtype",
        "As torch does it: dtypes that take turns do not close one another's buckets.",
        {
            INIT: (
                "self._buckets = partition_buckets(module.parameters(), bucket_cap_mb)",
                "every = list(module.parameters())\n"
                "        self._buckets = []\n"
                "        for dtype in {p.dtype: None for p in every}:\n"
                "            some = [p for p in every if p.dtype == dtype]\n"
                "            self._buckets += partition_buckets(some, bucket_cap_mb)",
            )
        },
    ),
    alternative(
        DDP,
        "hooks on the nodes that accumulate gradients",
        "As before there were post-accumulate hooks; sum and division in place of AVG.",
        {
            INIT: """
            ranks = dist.get_process_group_ranks(group)
            broadcast_parameters(module, ranks[0], group)
            self.buckets = partition_buckets(module.parameters(), bucket_cap_mb)
            self.quiet = False
            self.ready, self.flight, self.nodes = set(), [], []
            for bucket in self.buckets:
                for p in bucket:
                    node = p.expand_as(p).grad_fn.next_functions[0][0]
                    node.register_hook(lambda *_, p=p: self._gradient_is_ready(p))
                    self.nodes.append(node)
            """,
            READY: """
            if self.quiet:
                return
            self.ready.add(id(index))
            while len(self.flight) < len(self.buckets):
                bucket = self.buckets[len(self.flight)]
                if not all(id(p) in self.ready for p in bucket):
                    break
                self._issue_next_bucket()
            """,
            ISSUE: """
            flat = flatten_gradients(self.buckets[len(self.flight)])
            flat /= dist.get_world_size(self.group)
            self.flight.append((flat, dist.all_reduce(flat, group=self.group, async_op=True)))
            """,
            FINISH: """
            while len(self.flight) < len(self.buckets):
                self._issue_next_bucket()
            for (flat, work), bucket in zip(self.flight, self.buckets):
                work.wait()
                unflatten_gradients(flat, bucket)
            self.flight = []
            self.ready = set()
            """,
            NO_SYNC: """
            before, self.quiet = self.quiet, True
            try:
                yield
            finally:
                self.quiet = before
            """,
            EXPECT: "pass",
        },
    ),
    alternative(
        DDP,
        "futures in place of handles",
        "What comes after an all-reduce is chained to it; finish waits for the futures.",
        {
            ISSUE: """
            bucket = self._buckets[len(self._issued)]
            gradients = flatten_gradients(bucket)
            work = dist.all_reduce(gradients, group=self.group, async_op=True)
            self._issued.append((gradients, work.get_future()))
            """,
            FINISH: """
            while len(self._issued) < len(self._buckets):
                self._issue_next_bucket()
            for bucket, (gradients, future) in zip(self._buckets, self._issued, strict=True):
                torch.futures.wait_all([future])
                unflatten_gradients(gradients / dist.get_world_size(self.group), bucket)
            self._expect_gradients()
            """,
        },
    ),
    alternative(
        DDP,
        "it is finished inside backward",
        "A callback of the engine waits for everything, as torch's own does; finish does the rest.",
        {
            READY: """
            if not self._synchronizes:
                return
            if self._missing == [len(bucket) for bucket in self._buckets]:
                torch.autograd.Variable._execution_engine.queue_callback(
                    self.finish_gradient_synchronization
                )
                self._finished = False
            self._missing[index] -= 1
            while len(self._issued) < len(self._buckets) and not self._missing[len(self._issued)]:
                self._issue_next_bucket()
            """,
            FINISH: """
            if getattr(self, "_finished", False):
                self._finished = False
                return
            while len(self._issued) < len(self._buckets):
                self._issue_next_bucket()
            for bucket, (gradients, work) in zip(self._buckets, self._issued, strict=True):
                work.wait()
                unflatten_gradients(gradients, bucket)
            self._finished = any(self._missing[i] < len(b) for i, b in enumerate(self._buckets))
            self._expect_gradients()
            """,
        },
    ),
    alternative(
        DDP,
        "gradients are views of the buckets",
        "One buffer for each bucket, made once; the hook moves each gradient into it.",
        {
            INIT: """
            first = dist.get_process_group_ranks(group)[0]
            broadcast_parameters(module, first, group)
            self._buckets = partition_buckets(module.parameters(), bucket_cap_mb)
            self._buffers_flat = [
                torch.zeros(sum(p.numel() for p in b), dtype=b[0].dtype) for b in self._buckets
            ]
            self._views = {}
            for bucket, buffer in zip(self._buckets, self._buffers_flat):
                for p, part in zip(bucket, buffer.split([p.numel() for p in bucket])):
                    self._views[p] = part.view_as(p)
            self._in_sync = True
            self._expect_gradients()
            for index, bucket in enumerate(self._buckets):
                for p in bucket:
                    p.register_post_accumulate_grad_hook(
                        lambda p, index=index: self._gradient_is_ready((p, index))
                    )
            """,
            EXPECT: """
            self._waiting = [set(bucket) for bucket in self._buckets]
            self._works = []
            """,
            READY: """
            p, number = index
            if not self._in_sync:
                return
            self._waiting[number].discard(p)
            while len(self._works) < len(self._buckets) and not self._waiting[len(self._works)]:
                self._issue_next_bucket()
            """,
            ISSUE: """
            number = len(self._works)
            for p in self._buckets[number]:
                view = self._views[p]
                if p.grad is None:
                    view.zero_()
                elif p.grad is not view:
                    view.copy_(p.grad)
                p.grad = view
            buffer = self._buffers_flat[number]
            buffer.div_(dist.get_world_size(self.group))
            self._works.append(dist.all_reduce(buffer, group=self.group, async_op=True))
            """,
            FINISH: """
            while len(self._works) < len(self._buckets):
                self._issue_next_bucket()
            for work in self._works:
                work.wait()
            self._expect_gradients()
            """,
            NO_SYNC: """
            self._in_sync = False
            try:
                yield
            finally:
                self._in_sync = True
            """,
        },
    ),
    alternative(
        DDP,
        "what is used nowhere stays None, by a byte for each parameter",
        "After backward the ranks tell one another what they have.",
        {
            FINISH: """
            parameters = [p for bucket in self._buckets for p in bucket]
            used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
            while len(self._issued) < len(self._buckets):
                self._issue_next_bucket()
            telling = dist.all_reduce(used, dist.ReduceOp.MAX, self.group, async_op=True)
            for bucket, (gradients, work) in zip(self._buckets, self._issued):
                work.wait()
                unflatten_gradients(gradients, bucket)
            telling.wait()
            for p, anywhere in zip(parameters, used.tolist()):
                if not anywhere:
                    p.grad = None
            self._expect_gradients()
            """
        },
    ),
    alternative(
        DDP,
        "a class for a bucket, in a module of the student's own",
        "Each bucket knows its parameters, how many are ready, and its handle.",
        {
            INIT: """
            from .bucket import Bucket

            self.sync = True
            broadcast_parameters(module, dist.get_process_group_ranks(group)[0], group)
            some = partition_buckets(module.parameters(), bucket_cap_mb)
            self.buckets = [Bucket(bucket, group) for bucket in some]
            for bucket in self.buckets:
                for p in bucket.parameters:
                    p.register_post_accumulate_grad_hook(
                        lambda p, bucket=bucket: self._gradient_is_ready((bucket, p))
                    )
            """,
            READY: """
            bucket, p = index
            if self.sync:
                bucket.ready.append(p)
                self._issue_next_bucket()
            """,
            ISSUE: """
            for bucket in self.buckets:
                if bucket.work is None:
                    if len(bucket.ready) < len(bucket.parameters):
                        return
                    bucket.start()
            """,
            FINISH: """
            for bucket in self.buckets:
                if bucket.work is None:
                    bucket.start()
            for bucket in self.buckets:
                bucket.finish()
            """,
            EXPECT: "pass",
            NO_SYNC: """
            try:
                self.sync = False
                yield self
            finally:
                self.sync = True
            """,
        },
        modules={
            "bucket": """
import torch
import torch.distributed as dist


class Bucket:
    def __init__(self, parameters, group):
        self.parameters, self.group = parameters, group
        self.ready, self.work, self.flat = [], None, None

    def start(self):
        grads = []
        for p in self.parameters:
            grads.append(torch.zeros_like(p) if p.grad is None else p.grad)
        self.flat = torch.cat([g.reshape(-1) for g in grads])
        self.work = dist.all_reduce(self.flat, group=self.group, async_op=True)

    def finish(self):
        self.work.wait()
        n = dist.get_world_size(self.group)
        start = 0
        for p in self.parameters:
            stop = start + p.numel()
            p.grad = (self.flat[start:stop] / n).view(p.shape)
            start = stop
        self.ready, self.work, self.flat = [], None, None
"""
        },
    ),
]
