"""Whether a change leaves all that is compiled as it was: graphs, guards, loops, kernels, breaks and attempts, as the logs tell them.

The gate of a change that only moves or renames: `make same BASE=<commit>` records what the programs of `tests/programs` log, in a copy of that commit and here, and
shows what differs.
"""
