"""The best order to run requests with common prefixes."""


def depth_first(paths):
    """The indices of the paths in depth-first order. The branch with the most paths comes first; of
    equal branches, the first one. A path comes after the paths that extend it."""
    order, pending = [], [("branch", list(range(len(paths))), 0)]
    while pending:
        kind, indices, depth = pending.pop()
        if kind == "ends":
            order.extend(indices)
            continue
        ends, branches = [], {}
        for index in indices:
            path = paths[index]
            if len(path) == depth:
                ends.append(index)
            else:
                branches.setdefault(int(path[depth]), []).append(index)
        pending.append(("ends", ends, depth))
        by_weight = sorted(branches.values(), key=len, reverse=True)
        pending.extend(("branch", branch, _common(paths, branch, depth)) for branch in reversed(by_weight))
    return order


def _common(paths, branch, depth):
    """The length of the common prefix of a branch's paths."""
    first = paths[branch[0]]
    end = min(len(paths[index]) for index in branch)
    for index in branch[1:]:
        differs = (first[depth:end] != paths[index][depth:end]).nonzero()[0]
        if len(differs):
            end = depth + int(differs[0])
    return end
