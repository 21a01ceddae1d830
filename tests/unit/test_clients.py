"""The client side on clusters small enough to follow by hand. A step takes 1 s; a prompt and its answer one step a token."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.clients import Clients, Loop
from llmqsim.cluster.cluster import Cluster
from llmqsim.cost.stations import Stations
from llmqsim.errors import InvariantError
from llmqsim.options import HostCost
from llmqsim.requests import INDEX, UNSET, Outcome
from tests.support import deployment, seconds, table

S = 10**9


def serve(requests, clients: Clients, until_s: float | None = None, **servers) -> Cluster:
    cluster = Cluster(requests, deployment(**servers), keep_steps=True, clients=clients)
    cluster.end_ns = cluster.run(None if until_s is None else round(until_s * S))
    return cluster


def loop(rows: int, clients: int, prompt: int = 4, output: int = 1, think_s: float = 0.0, **more):
    requests = table(*[(0.0, prompt, output)] * rows)
    for name in ("arrival_ns", "intended_ns"):
        requests.data[INDEX[name]] = UNSET
    requests.data[INDEX["think_ns"]] = round(think_s * S)
    return requests, Loop(np.arange(rows), clients, **more)


def test_each_client_sends_when_its_answer_has_come_and_it_has_thought():
    requests, two = loop(6, 2, output=2, think_s=0.5)
    found = serve(requests, Clients((two,)), max_num_seqs=1).table
    # one slot, two steps a request: the clients take turns
    assert seconds(found.arrival_ns) == [0, 0, 2.5, 4.5, 6.5, 8.5]
    assert seconds(found.finish_ns) == [2, 4, 6, 8, 10, 12]
    assert found.client.tolist() == [0, 1, 0, 1, 0, 1]
    assert seconds(found.intended_ns) == seconds(found.arrival_ns)


def test_zero_turn_around_joins_the_next_step_and_any_other_misses_it():
    """The step of the fidelity study: at saturation the next request just misses the forming of a step, or does not."""
    starts = []
    for turnaround_ns in (0, 1, S // 2):
        # client 1's long answer keeps the steps coming
        requests, two = loop(4, 2, output=1)
        requests.data[INDEX["output_tokens"], 1] = requests.data[INDEX["max_tokens"], 1] = 9
        found = serve(requests, Clients((two,), turnaround_ns=turnaround_ns)).table
        starts.append(seconds(found.first_scheduled_ns)[2])
    assert starts == [1, 2, 2]


def test_the_way_back_to_the_client_counts_before_it_answers():
    requests, one = loop(2, 1)
    host = HostCost(request_before_s=0.25, request_after_s=0.5)
    found = serve(requests, Clients((one,)), host=host).table
    assert seconds(found.finish_ns) == [1.75, 3.5] and seconds(found.arrival_ns) == [0, 1.75]


def test_a_ramp_spreads_the_start_and_a_stop_ends_the_sending():
    requests, four = loop(40, 4, ramp_up_ns=8 * S, stop_ns=9 * S)
    found = serve(requests, Clients((four,)))
    sent = found.table.arrival_ns != UNSET
    assert seconds(np.sort(found.table.arrival_ns[sent]))[:4] == [0, 1, 2, 2]
    assert {0, 2, 4, 6} <= set(seconds(found.table.arrival_ns[sent]))
    assert found.table.arrival_ns.max() < 9 * S and 0 < sent.sum() < 40
    assert (found.table.outcome[~sent] == Outcome.UNFINISHED).all()


def test_after_a_drained_warm_up_all_clients_start_together_again():
    requests, three = loop(9, 3, drain_after=4)
    found = serve(requests, Clients((three,)), max_num_seqs=1).table
    assert seconds(found.arrival_ns) == [0, 0, 0, 1, 4, 4, 4, 5, 6]
    assert seconds(found.finish_ns)[3] == 4, "the last of the warm-up"


def test_what_the_servers_refuse_costs_a_client_only_its_own_time():
    requests, one = loop(3, 1, think_s=0.5)
    requests.data[INDEX["prompt_tokens"], 1] = 1000
    found = serve(requests, Clients((one,), turnaround_ns=S // 4), max_model_len=100).table
    assert found.outcome.tolist() == [Outcome.COMPLETED, Outcome.REJECTED, Outcome.COMPLETED]
    assert seconds(found.arrival_ns) == [0, 1.75, 2.5]


def test_a_cap_keeps_both_times_and_sends_in_order():
    requests = table((0, 4, 2), (0, 4, 1), (0.5, 4, 1), (5, 4, 1))
    found = serve(requests, Clients(max_in_flight=1)).table
    assert seconds(found.intended_ns) == [0, 0, 0.5, 5]
    assert seconds(found.arrival_ns) == [0, 2, 3, 5]
    late = serve(table((0, 4, 2), (0, 4, 1)), Clients(max_in_flight=1, turnaround_ns=S // 2)).table
    assert seconds(late.arrival_ns) == [0, 2.5]


def test_a_run_that_stops_leaves_unsent_what_the_cap_held():
    requests = table((0, 4, 3), (0, 4, 3), (0, 4, 3))
    found = serve(requests, Clients(max_in_flight=1), until_s=4.5).table
    assert found.arrival_ns.tolist() == [0, 3 * S, UNSET]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_who_gives_up_leaves_the_queue_or_the_batch_and_frees_what_it_held(in_flight):
    # 3 usable blocks of 16: one request of 30 to 47 tokens at a time
    requests = table((0, 30, 18), (0, 30, 18), (1, 30, 1))
    cluster = serve(requests, Clients(timeout_ns=5 * S), blocks=4, in_flight=in_flight)
    found = cluster.table
    # formed as the step before it starts, the step from 5 s on holds the first request still, so the last comes too late
    last = Outcome.COMPLETED if in_flight == 1 else Outcome.TIMED_OUT
    assert found.outcome.tolist() == [Outcome.TIMED_OUT, Outcome.TIMED_OUT, last]
    assert seconds(found.gave_up_ns)[:2] == [5, 5]
    assert found.first_scheduled_ns[1] == UNSET and found.wait_kv_ns[1] + found.wait_step_ns[1] == 5 * S
    assert cluster.replicas[0].pool.held_blocks == 0
    assert found.generated_tokens[0] > 0 and found.finish_ns[0] == UNSET
    assert cluster.end_ns < 10 * S, "the clock may run on to a deadline, the run does not"


def test_a_time_out_makes_room_for_those_behind():
    patient = serve(table((0, 30, 18), (4, 30, 2)), Clients(), blocks=4).table
    hasty = serve(table((0, 30, 18), (4, 30, 2)), Clients(timeout_ns=6 * S), blocks=4).table
    assert seconds(patient.first_scheduled_ns)[1] == 18
    assert seconds(hasty.first_scheduled_ns)[1] == 6 and hasty.outcome[1] == Outcome.COMPLETED


def test_an_answer_at_the_last_instant_is_in_time_and_one_after_it_is_not():
    assert serve(table((0, 4, 3)), Clients(timeout_ns=3 * S)).table.outcome.tolist() == [Outcome.COMPLETED]
    assert serve(table((0, 4, 3)), Clients(timeout_ns=3 * S - 1)).table.outcome.tolist() == [Outcome.TIMED_OUT]


def test_a_last_token_that_is_on_its_way_comes_too_late():
    host = HostCost(request_after_s=1.0)
    found = serve(table((0, 4, 3)), Clients(timeout_ns=round(3.5 * S)), host=host).table
    assert found.outcome.tolist() == [Outcome.TIMED_OUT] and found.finish_ns.tolist() == [UNSET]
    assert seconds(found.first_token_ns) == [2]


def test_a_request_that_never_reached_its_replica_is_dropped_on_the_way():
    host = HostCost(request_before_s=2.0)
    cluster = serve(table((0, 4, 3), (0.5, 4, 1)), Clients(timeout_ns=S), host=host)
    assert (cluster.table.outcome == Outcome.TIMED_OUT).all() and not cluster.step_log
    assert (cluster.table.first_scheduled_ns == UNSET).all()


def test_a_closed_loop_goes_on_after_a_time_out():
    requests, one = loop(3, 1, output=5, think_s=0.5)
    found = serve(requests, Clients((one,), timeout_ns=2 * S)).table
    assert seconds(found.arrival_ns) == [0, 2.5, 5]


def test_aborting_what_is_not_there_is_a_bug():
    cluster = serve(table((0, 4, 1)), Clients())
    with pytest.raises(InvariantError, match="request 0 is not here"):
        cluster.replicas[0].abort(0)


def stations(requests, clients: Clients = Clients(), **times) -> Cluster:
    return serve(requests, clients, cost=Stations(**times))


def test_stations_serve_prompts_one_by_one_and_delay_answers():
    cluster = stations(table((0, 10, 5), (0, 20, 1), (0, 10, 3)), prefill_s=1.0, prefill_per_token_s=0.1, decode_s=7.0)
    found = cluster.table
    assert seconds(found.first_token_ns) == [2, 5, 7]
    assert seconds(found.finish_ns) == [9, 5, 14], "an answer of one token has no decoding"
    assert seconds(found.wait_step_ns) == [0, 2, 5]
    usage = cluster.replicas[0].usage
    assert (usage.busy_ns, usage.running_ns, usage.waiting_ns, usage.steps) == (7 * S, 7 * S, 7 * S, 3)
    assert cluster.gaps.counts.sum() == 6 and cluster.gaps.sum_ns == [14 * S]


def test_stations_forget_who_gave_up():
    requests = table((0, 10, 5), (0, 10, 5), (0, 10, 5))
    cluster = stations(requests, Clients(timeout_ns=round(2.5 * S)), prefill_s=1.0, decode_s=2.0)
    found = cluster.table
    assert (found.outcome == Outcome.TIMED_OUT).all()
    assert seconds(found.first_token_ns)[:2] == [1, 2] and found.first_token_ns[2] == UNSET
    usage = cluster.replicas[0].usage
    assert usage.tokens == 30 == usage.aborted_tokens
    queued = stations(table((0, 10, 2), (0, 10, 2)), Clients(timeout_ns=S // 2), prefill_s=1.0)
    assert queued.replicas[0].usage.steps == 1 and seconds(queued.table.wait_step_ns) == [0, 0.5]
