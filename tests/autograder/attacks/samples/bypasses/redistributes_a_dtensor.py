# Lets a DTensor reduce itself.
#
# unconfined: yes
# check: all_reduce/sum
# outcome: failed
# says: collectives.py, line

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial

def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    mesh = DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
    tensor.copy_(DTensor.from_local(tensor.clone(), mesh, [Partial()]).full_tensor())
