"""The order in which requests with common prefixes are best run."""


def depth_first(paths):
    """The indices of the paths, depth first: of the branches at a place the one with the most paths
    first, of equals the one that comes first. A path comes after those that go on from its end."""
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
    """How far the paths of a branch agree."""
    first = paths[branch[0]]
    end = min(len(paths[index]) for index in branch)
    for index in branch[1:]:
        differs = (first[depth:end] != paths[index][depth:end]).nonzero()[0]
        if len(differs):
            end = depth + int(differs[0])
    return end
