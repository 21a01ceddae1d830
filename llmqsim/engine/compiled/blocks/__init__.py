"""Blocks of a replica's KV pool: counted, and, with prefix caching, in the order in which free ones are used again.

What kv/prefix.py knows block by block is kept in nodes (world/blocks.py), and only as far as it can matter:

- a *copy* (key >= 0) is one block whose content others may look for, held by `count` requests or free;
- a *run* (key < 0) is `count` free blocks: the leading private blocks of a preempted request (OWNED - slot), which it alone
  may look for, or blocks that nobody will look for (HASHED, UNHASHED; the host keeps what was in the former).

The free list, used from its head, links free copies and runs. A request's blocks are freed tail first, so that what is
left of its run is always the leading part. Private blocks that are held are only counted. Copies of one key are a ring in
the order in which they were computed; prefix/copies.py finds them.
"""
