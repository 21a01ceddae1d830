"""One step of one replica, request by request: form it, commit it. What engine/draft.py and reference.py do, in records.

Each file imports those before it: rows, running, entry; rows, forming, ending. Arguments that all of them share: table
int64[columns, rows], the requests; run, what all replicas share (world/run.py); arena int64[:], where lists lie and all
records, too; costs float64[:] and params int64[:], the step costs (cost/kernels.py); replica (world/replica.py); step, the
one that is formed or ends (world/step.py); request (world/request.py), or slot, its number; row, of the request table; now,
ns.
"""
