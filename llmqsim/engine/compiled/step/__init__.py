"""One step of one replica, request by request: form it, commit it. What engine/draft.py and reference.py do, in arrays.

Each folder imports those before it: rows, running, entry; rows, forming, ending. Arguments that all of them share: table
int64[columns, rows], the requests; arena int64[:], all state (layout.py); costs float64[:] and params int64[:], the step
costs (cost/kernels.py); base, where the replica begins in the arena.
"""
