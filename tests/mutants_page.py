def page(of, noticed):
    import collections
    alive=[str(m) for m in of if not noticed[str(m)]]
    return f"{len(of)} mutants, {len(alive)} survived\n" + "\n".join(alive)
