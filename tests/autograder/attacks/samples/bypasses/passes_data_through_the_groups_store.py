# Passes its data through the store that its groups met at.
#
# flagged: no message at all
# check: broadcast/from_rank_0
# earns: either
# ci: no

_calls = []

def broadcast(tensor, src, group=None):
    _calls.append(src)
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == src:
        store.set(f"values-{len(_calls)}", repr(tensor.tolist()))
    tensor.copy_(torch.tensor(eval(store.get(f"values-{len(_calls)}"))))
