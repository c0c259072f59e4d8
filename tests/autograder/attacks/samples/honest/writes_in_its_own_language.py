# Has names, comments and texts that are not ASCII.
#
# check: broadcast/from_rank_0, broadcast/layouts
# ci: yes

# Рассылает тензор всем — 全員に送る
größe = "Übertragung läuft …"
_правильно = broadcast

def broadcast(tensor, src, group=None):
    '''Schickt den Tensor an alle: «да» 🙂'''
    print(größe, "進捗", end="\n\n")
    _правильно(tensor, src, group)
