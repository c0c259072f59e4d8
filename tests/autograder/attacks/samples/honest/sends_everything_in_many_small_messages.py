# Sends element by element, and with tags.
#
# check: broadcast/from_rank_0
# ci: yes

def broadcast(tensor, src, group=None):
    flat = tensor.contiguous().view(-1)
    whole = group or dist.group.WORLD
    ranks = dist.get_process_group_ranks(whole)
    for place in range(flat.numel()):
        if dist.get_rank() == src:
            for peer in ranks:
                if peer != src:
                    dist.send(flat[place : place + 1], peer, group, tag=place)
        else:
            dist.recv(flat[place : place + 1], src, group, tag=place)
    tensor.copy_(flat.view(tensor.shape))
