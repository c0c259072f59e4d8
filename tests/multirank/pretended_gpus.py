"""NCCL on a machine without a GPU: everything but the kernels, to test what surrounds it.

`before_ranks=PRETEND` puts gloo where NCCL would be, in one world alone: torch believes that NCCL
and eight GPUs are there, constructs NCCL with its own options, and each rank's GPU is main memory.
"""

from multirank import Source

_TEXT = '''
def pretend():
    """Runs in the leader, from which the ranks are forked."""
    import torch
    import torch.distributed.distributed_c10d as c10d

    from multirank.processes import rank as rank_process
    from multirank.recording import watch

    class Options:
        """As torch fills them in before it makes an NCCL group."""

        is_high_priority_stream = False
        global_ranks_in_group = ()
        group_name = ""

    class PretendedNCCL(c10d.ProcessGroupGloo):
        def __init__(self, store, rank, size, options):
            assert isinstance(options, Options)
            super().__init__(store, rank, size, options._timeout)

    PretendedNCCL.Options = Options
    watched = watch._watched_nccl

    def on_main_memory(real):
        made = watched(real)
        made.device, made.kind = "cpu", torch.distributed.ProcessGroup.BackendType.GLOO
        return made

    selected = []
    torch.cuda.device_count = lambda: 8
    torch.cuda.set_device = selected.append
    take = rank_process.take_device

    def take_main_memory(backend, rank):
        device = take(backend, rank)
        assert backend == "gloo" or (device.type, selected) == ("cuda", [rank])
        return torch.device("cpu")

    c10d._NCCL_AVAILABLE = True
    c10d.ProcessGroupNCCL = PretendedNCCL
    watch._watched_nccl = on_main_memory
    rank_process.take_device = take_main_memory
'''
PRETEND = Source(_TEXT, "pretend", "<pretended GPUs>")
