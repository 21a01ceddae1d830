"""What all replicas of a run share: options, sizes, where lists lie, how far router and clients have got."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.books import GapSum
from llmqsim.engine.compiled.world.record import Record, listed, placed


class Run(Record):
    """A run. It lies at the beginning of the arena. `Where x lies` is a place in the arena, of one word for each."""

    __slots__ = ()
    replicas: int  # how many
    rows: int  # of the request table, that may be sent so far
    routed: int  # rows that have been sent, or have their replica: all before this one
    next_row: int  # that the router or a closed loop sends next
    before_ns: int  # from the client to the replica
    after_ns: int  # from the replica to the client
    # what a step may hold (options.py)
    max_num_seqs: int  # slots that may run at once
    budget: int  # tokens of a step
    block_size: int  # tokens of a KV block
    chunked: int  # 1: a prompt may be split over steps
    whole_prompt: int  # 1: nobody enters before all blocks of its known tokens are free
    threshold: int  # most tokens that one request gets in a step, 0: no such limit
    watermark: int  # blocks that stay free when somebody enters beside others
    in_flight: int  # steps that are formed ahead, the running one included
    stages: int  # of the pipeline
    ring: int  # steps that a replica has room for
    step_words: int  # from one step of a replica to the next
    longest: int  # tokens of the longest sequence
    keeps_slots: int  # 1: a batch keeps the slots of those who have ended
    # preemption
    victim: int  # who gives way: NEWEST, ...
    swaps: int  # 1: its KV goes to the host
    cheaper: int  # 1: only where that is quicker than to compute it again
    link_rate: float  # bytes/s to the host, for `cheaper`
    re_estimate: float  # how predictions are corrected (RequestTable.re_estimate)
    targets: int  # where the targets of classes lie (Target)
    prefill_ns: int  # where the times of prompts alone lie, ns by tokens
    decode_ns: int  # of a decode step for policies that ask, see engine/costs
    decode_token: int
    block_bytes: int
    copy_ns: int  # of a block over the link, beside its bytes
    link: int  # place of the link's bytes/s in the step costs, not in the arena
    # the cache
    caching: int  # 1: prefix caching is on
    host_blocks: int  # that the host keeps of what loses its place on the GPU
    unhashed_first: int  # 1: free blocks that hold nothing are used before others
    prefix: int  # where it is said how many keys the rows before each have, rows + 1 words; 0: no prompts share
    prefix_ids: int  # where the keys lie
    warm: int  # 1: the cache was filled before the run
    cached_percent: int  # of KV that several decodes read at once, that comes from the chip's cache
    near_admissions: int  # between two holders of a copy, so that they read it at once
    cold_ns: int  # that the first steps of a server take longer
    # queues that are sorted, and orderings
    sorted: int  # 1: waiting queues are sorted by keys
    queue: int  # where the entries of rows lie (Entry)
    slope: int  # keys are base + slope x arrival
    preempted_go_first: int  # 1: before every key
    looks_again: int  # 1: keys change while requests wait
    tenants: int  # that are counted, 0: the ordering does not ask
    marks: int  # where what the ordering keeps for each row lies
    # scratch of the step that is being formed
    draft: int  # where its rows lie (Drafted)
    scratch: int  # where a list of slots lies, with room for two more columns, twice
    fault: int  # why the run can't go on: DONE, MORE_SLOTS, ...
    # what is written down
    classes: int  # of traffic
    slots: int  # of a replica
    next_ns: int  # where it lies when each replica does something next
    outstanding: int  # where the requests in flight at each replica lie
    gaps: int  # where the histogram of each class lies, GAP_BINS words
    gap_sums: int  # where their sums lie (GapSum)
    log: int  # where the step log lies, LOG_COLUMNS words a row
    log_rows: int  # that it has room for, 0: none is kept
    logged: int  # rows that are there
    first_replica: int  # where it lies
    stride: int  # words from one replica to the next
    # a closed loop
    turns: int  # where the heap of turns lies (Turn)
    turns_size: int
    due: int  # where the clients lie whose turn is now
    sent: int  # requests that have been
    answers: int  # where rows lie that have just ended, 0: nobody listens
    answered: int  # how many
    stop_ns: int  # nothing is sent from then on
    turnaround_ns: int  # of a client, before it thinks
    last_turn_ns: int
    in_turn: int  # 1: replicas get requests one after the other
    router: int  # where its record lies (Router)
    # clients of all kinds
    events: int  # where the heap of events lies (Event)
    events_size: int
    number: int  # of the last event that was thought of
    sent_rows: int  # where sent rows lie, in their order; 0: they were sent by number
    sent_order: int  # where the numbers of their deliveries lie
    on_the_way: int  # sent ones before this have reached their replica
    watched: int  # sent ones before this need no watch any more
    watch: int  # over requests whose time is up: IDLE, ...
    timeout_ns: int  # after which a client gives up
    cap: int  # requests in flight, 0: none
    in_use: int  # places under it
    open: int  # where the rows of no loop lie
    open_size: int
    open_due: int  # of these, that are due
    open_sent: int  # and that have been sent
    loops: int  # where closed loops lie (Loop)
    loop_of: int  # where the loop of each row lies, -1: none
    last_client_ns: int  # when a client last did something


class Target(Record):
    """What a class is promised, ns, NO_TARGET where it isn't."""

    __slots__ = ()
    ttft_ns: int
    tpot_ns: int
    e2e_ns: int


NO_TARGET = -1
NEWEST, LEAST_URGENT, LEAST_KV, MOST_SLACK = range(4)
"""Run.victim: who gives way"""
LOG_COLUMNS = 9
"""as records.StepLog, and since when the replica waited for the step to end"""

run_at = placed(Run)
target_at = listed(Target)
gap_sum_at = listed(GapSum)
