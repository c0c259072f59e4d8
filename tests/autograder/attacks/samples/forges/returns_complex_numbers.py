# Makes its tensor one of complex numbers.
#
# check: broadcast/from_rank_0
# unconfined: yes

_right = broadcast

def broadcast(tensor, src, group=None):
    _right(tensor, src, group)
    tensor.data = torch.complex(tensor.data, torch.full_like(tensor.data, 1.0))
