"""FastServe in fifty lines: skip-join queues and proactive swapping as the paper and its published scheduler state them.

Skip-join: level p has the quantum q * 2^p; a job joins the highest level whose quantum covers its first iteration. Each
iteration serves, from the highest level down and first come, first served within one, up to `batch` jobs whose keys and
values are on the GPU, or new ones for which there is room. A job that has used up its quantum goes one level down, to the
tail; else it keeps its place. Who has not been served for `starve` seconds goes to the front of the highest level.

Swapping: no job computes anything twice. When free blocks fall below `keep`, jobs that are not served are copied out, the
last of the order first, while the iteration runs. In an iteration with no copy out, those in the host's memory are
brought in, the first of the order first, as long as `keep` blocks stay free: they are there before their turn comes. With
`keep` 0 and no bringing in ahead, the same scheduler swaps only when somebody lacks room: reactively.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Job:
    arrival: float
    prompt: int
    output: int
    level: int = 0
    spent: float = 0.0
    made: int = 0
    where: str = "new"
    last: float = 0.0
    end: float = 0.0

    def blocks(self, block: int, more: int = 0) -> int:
        """Blocks for what it has computed and `more` tokens."""
        return -(-(self.prompt + self.made + more) // block)


def serve(jobs, *, batch, blocks, block, keep, quantum, levels, starve, step_s, prefill_s, proactive=True):
    """Run all jobs; returns (jobs with `end` set, copies out). step_s(new prompt tokens, jobs) : of an iteration."""
    coming, order, now, out = sorted(jobs, key=lambda job: job.arrival), [], 0.0, 0
    while coming or order:
        if not order:
            now = max(now, coming[0].arrival)
        while coming and coming[0].arrival <= now:
            job = coming.pop(0)
            job.level = next((p for p in range(levels - 1) if prefill_s(job.prompt) <= quantum * 2**p), levels - 1)
            job.last = now
            order.append(job)
        starved = [job for job in order if job.level > 0 and now - job.last >= starve]
        for job in starved:
            job.level, job.spent = 0, 0.0
        order = sorted(starved + [job for job in order if job not in starved], key=lambda job: job.level)
        held = {id(job): job.blocks(block) for job in order if job.where == "gpu"}
        free, served, moved = blocks - sum(held.values()), [], False
        for job in order[:batch] if proactive else order:
            if len(served) == batch:
                break
            need = job.blocks(block, 0 if job.where == "new" else 1) - held.get(id(job), 0)
            for victim in reversed(order):  # room is made at once: the last of the order goes
                if need <= free or victim is job or victim in served:
                    break
                if victim.where == "gpu":
                    victim.where, free, out, moved = "host", free + held.pop(id(victim)), out + 1, True
            if need > free:
                break
            free, held[id(job)], job.where = free - need, held.get(id(job), 0) + need, "gpu"
            served.append(job)
        for victim in reversed(order):
            if proactive and free < keep and victim.where == "gpu" and victim not in served:
                victim.where, free, out, moved = "host", free + held.pop(id(victim)), out + 1, True
        for job in order:
            need = job.blocks(block)
            if proactive and not moved and job.where == "host" and free - need >= keep:
                job.where, free = "gpu", free - need
        now += (took := step_s(sum(job.prompt for job in served if job.made == 0), len(served)))
        for job in served:
            job.made, job.last, job.spent, job.end = job.made + 1, now, job.spent + took, now
            if job.spent >= quantum * 2**job.level and job.level < levels - 1:
                job.level, job.spent = job.level + 1, 0.0
                order.remove(job)
                order.append(job)
        order = sorted((job for job in order if job.made < job.output), key=lambda job: job.level)
    return jobs, out
