# Uses half a gigabyte on every rank.
#
# check: broadcast/from_rank_0
# ci: yes

_right = broadcast

def broadcast(tensor, src, group=None):
    scratch = torch.ones(128 << 20)
    assert scratch[-1] == 1
    _right(tensor, src, group)
