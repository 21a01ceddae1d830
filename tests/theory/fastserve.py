"""FastServe in some fifty lines: skip-join queues and proactive swapping as the paper and its published scheduler state them.

Skip-join: level p has the quantum q * 2^p; a job joins the highest level whose quantum covers its first iteration. Each
iteration serves, from the highest level down and first come, first served within one, up to `batch` jobs whose keys and
values are on the GPU, or for which there is room. A job whose time in iterations exceeds its quantum goes one level down,
to the tail; else it keeps its place. Who was in no iteration for `starve` goes to the front of the highest level.

Swapping: no job computes anything twice. When fewer than `batch` blocks are free, jobs that are not served are copied out,
the last of the order first, while the iteration runs. In one with no copy out, those in the host's memory are brought in,
the first of the order first, as long as `batch` blocks stay free (or nobody is on the GPU): they are there before their
turn comes. Only new jobs, and those that grow, take the room of jobs behind them, and then the iteration waits for the copies.

Left open by that statement and taken from the engine: a request's last token has no keys yet; one that comes back needs a
block more than it has, unless nobody is there; behind the first new one for whom there is no room, or one who gave his to another, only those on the GPU are served.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Job:
    """A request; times in any unit. where : "new", "gpu" or "host"."""

    arrival: int
    prompt: int
    output: int
    level: int = 0
    spent: int = 0
    made: int = 0
    where: str = "new"
    last: int = 0
    end: int = 0

    def blocks(self, size: int, ahead: int = 0) -> int:
        """For what it has computed and, ahead = 1, its next token."""
        return -(-(self.prompt + max(0, self.made - 1) + ahead * (self.made > 0)) // size)


def serve(jobs, *, batch, blocks, size, quantum, levels, starve, step, prefill, copy):
    """Run all jobs; returns (copies out and in ahead of need, and in need). Sets `end` of each job.

    step(prompt tokens, decoding jobs) and prefill(prompt tokens) : times. copy : time of a block.
    """
    coming, order, now, ahead, needed = sorted(jobs, key=lambda job: job.arrival), [], 0, 0, 0
    while coming or order:
        now = now if order else max(now, coming[0].arrival)
        while coming and coming[0].arrival <= now:
            job = coming.pop(0)
            job.level = next((p for p in range(levels - 1) if prefill(job.prompt) <= quantum * 2**p), levels - 1)
            job.last = now
            order.append(job)
        order.sort(key=lambda job: job.level)
        for job in [job for job in order if now - job.last >= starve]:
            order.remove(job)
            order.insert(0, job)
            job.level, job.spent, job.last = 0, 0, now
        free = blocks - sum(job.blocks(size) for job in order if job.where == "gpu")
        alone = all(job.where != "gpu" for job in order)
        served, lost, entry, waits, beside = [], [], True, 0, 0
        for place, job in enumerate(order):
            entry = entry and job not in lost
            shut_out = not alone if job.where == "host" else job.where == "new" and not entry
            if len(served) == batch or shut_out:
                continue
            need = job.blocks(size, 1) - (job.blocks(size) if job.where == "gpu" else 0)
            others = any(other.where == "gpu" for other in order)
            asks = job.blocks(size) + others if job.where == "host" else need
            behind = [other for other in reversed(order[place + 1 :]) if other.where == "gpu"]
            if free + sum(other.blocks(size) for other in behind) < asks:
                entry = entry and job.where != "new"
                continue
            while free < asks:
                victim = behind.pop(0)
                victim.where = "host"
                lost.append(victim)
                free, waits = free + victim.blocks(size), waits + victim.blocks(size)
            waits += job.blocks(size) if job.where == "host" else 0
            free, job.where = free - need, "gpu"
            served.append(job)
        for victim in [job for job in reversed(order) if job.where == "gpu" and job not in served]:
            if free < batch:
                victim.where = "host"
                lost.append(victim)
                free, beside = free + victim.blocks(size), beside + victim.blocks(size)
        for job in [job for job in order if job.where == "host" and not lost]:
            if free - job.blocks(size) < batch:
                break
            job.where, free, beside = "gpu", free - job.blocks(size), beside + job.blocks(size)
        prompts = sum(job.prompt for job in served if job.made == 0)
        took = max(step(prompts, sum(job.made > 0 for job in served)), beside * copy) + waits * copy
        ahead, needed = ahead + beside, needed + waits
        for job in served:
            job.made, job.last, job.spent, job.end = job.made + 1, now, job.spent + took, now + took
            if job.spent > quantum * 2**job.level and job.level < levels - 1:
                job.level, job.spent = job.level + 1, 0
                order.remove(job)
                order.append(job)
        now += took
        order = [job for job in order if job.made < job.output]
    return ahead, needed
