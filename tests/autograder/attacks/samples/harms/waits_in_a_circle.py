# Every rank waits for its neighbour.
#
# unconfined: yes
# says: wait
# ci: yes

def barrier(group=None):
    dist.recv(torch.ones(1), (dist.get_rank() + 2) % 4 if dist.get_rank() != 3 else 0, group)
