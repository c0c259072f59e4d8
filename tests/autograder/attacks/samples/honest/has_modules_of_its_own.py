# Has several modules of its own, which import one another.
#
# check: broadcast/from_rank_0, broadcast/layouts
# ci: yes

def make(at, files):
    for name, content in files.items():
        (at / name).write_bytes(content)
    right = (at / "collectives.py").read_text().replace("def broadcast(", "def _old_broadcast(")
    (at / "collectives.py").write_text(right + "\n\nfrom .my_broadcast import broadcast\n")
    (at / "my_broadcast.py").write_text(
        "import torch.distributed as dist\nfrom assignment.my_ranks import others\n\n\n"
        "def broadcast(tensor, src, group=None):\n    from . import collectives\n"
        "    assert others(3, 1) == [0, 2]\n    collectives._old_broadcast(tensor, src, group)\n"
    )
    (at / "my_ranks.py").write_text(
        "def others(size, rank):\n    return [one for one in range(size) if one != rank]\n"
    )
    return at
