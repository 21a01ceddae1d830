"""The state of a compiled run, as records: one file for each thing that exists, its fields declared once.

All of it lies in one int64 array, the arena: the run, then lists, then a record for each replica with lists of its own.
A record is a view into the arena (record.py); a list whose length is known when the run begins is named by the place of its
first word, a field of the record that it belongs to, so that `arena[replica.order + i]` is the i-th slot that runs.
"""
