# Computes with numpy and subclasses of its own.
#
# check: broadcast/from_rank_0

import os, sys, time, signal
_right = broadcast

def broadcast(tensor, src, group=None):
    import numpy as np
    class Named(torch.Tensor):
        pass
    named = tensor.detach().clone().as_subclass(Named)
    assert np.isfinite(named.double().numpy()).all()
    _right(tensor, src, group)
