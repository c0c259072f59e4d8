# Starts torch's remote procedure calls.
#
# check: broadcast/from_rank_0

def broadcast(tensor, src, group=None):
    from torch.distributed import rpc
    rpc.init_rpc(f"rank{dist.get_rank()}", rank=dist.get_rank(), world_size=dist.get_world_size(),
                 rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file:///tmp/calls", rpc_timeout=2))
    print("BREACH called")
