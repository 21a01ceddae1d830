"""The state of a compiled run, as records: one file for each thing that exists, its fields declared once.

All of it lies in one int64 array, the arena: the run, then lists, then a record for each replica with lists of its own.

    run | next event, outstanding (a word a replica) | gaps | log | turns, answers | router | replica 0 | replica 1 | ...

    a replica:  its fields | steps in flight, with the slots they sample | order | stack | ... | slots

A record is a view into the arena (record.py). A list whose length is known when the run begins is named by the place of
its first word, a field of the record that it belongs to: `arena[replica.order + i]` is the i-th slot that runs.

A request gets a *slot* when it is first admitted and keeps it until it ends; new requests that wait are rows of the table
and need no slot.
"""
