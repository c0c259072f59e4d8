"""The nine collectives, as torch.distributed does them."""

from __future__ import annotations

import torch.distributed as dist

broadcast = dist.broadcast
scatter = dist.scatter
gather = dist.gather
reduce = dist.reduce
all_gather = dist.all_gather_into_tensor
reduce_scatter = dist.reduce_scatter_tensor
all_reduce = dist.all_reduce
all_to_all = dist.all_to_all_single
barrier = dist.barrier

# dta-canary-5c1e7f0a9d3b
