# Reads every file that it can.
#
# begins with: spy
# earns: all
# ci: yes

def _spy():
    count = 0
    roots = ["{root}", "{private}", "/root", "/home", "/tmp", "/var/tmp", "/autograder", "/opt"]
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f not in ("site-packages", "node_modules", "proc")]
            for name in names:
                count += 1
                if count > 20_000:
                    return
                path = os.path.join(folder, name)
                # Elsewhere the repository's own text may lie, as somebody's copy of it.
                _grep(path, _read(path), 3 if root == "{root}" else 1)
