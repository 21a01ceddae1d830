"""One rank of a collective, run as a script: reads orders as JSON lines, answers on stdout. Needs only PyTorch."""

from __future__ import annotations

import json
import os
import sys
import time

MARK = "@@"
SPIN_CYCLES = 2_000_000
"""the GPU spins about 1 ms first: by then every rank has launched its graph"""


class Rank:
    """A device, a process group, and the collective that was asked for last."""

    def __init__(self, rank: int, count: int, port: int, place: str):
        import torch
        import torch.distributed as group

        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.torch, self.group, self.rank, self.count = torch, group, rank, count
        self.cuda = place == "cuda"
        self.place = torch.device("cuda", rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.place)
        group.init_process_group("nccl" if self.cuda else "gloo", rank=rank, world_size=count)
        torch.set_grad_enabled(False)

    def prepare(self, op: str, size: int, graph: bool) -> dict:
        """`size`: bytes of the message: what each rank holds (all_reduce, alltoall, send_recv), gathers in all
        (all_gather) or starts from (reduce_scatter)."""
        torch, group, count = self.torch, self.group, self.count
        elements = max(count, size // 2 // count * count)
        whole = torch.randn(elements, dtype=torch.bfloat16, device=self.place)
        part = torch.randn(elements // count, dtype=torch.bfloat16, device=self.place)
        out = torch.empty_like(whole)
        self.graph = graph
        # Summing in place ends in infinities, which cost a link what other values do.
        # PyTorch 2.13 renamed both.
        gather = getattr(group, "all_gather_single", None) or group.all_gather_into_tensor
        scatter = getattr(group, "reduce_scatter_single", None) or group.reduce_scatter_tensor
        self.call = {
            "all_reduce": lambda: group.all_reduce(whole),
            "all_gather": lambda: gather(whole, part),
            "reduce_scatter": lambda: scatter(part, whole),
            "alltoall": lambda: group.all_to_all_single(out, whole),
            "send_recv": lambda: group.send(whole, 1) if self.rank == 0 else group.recv(whole, 0),
        }[op]
        return {}

    def window(self, calls: int) -> dict:
        """Get a window of `calls` calls ready."""
        self.calls = calls
        self.launch = self._loop
        if self.cuda and self.graph:
            self.call()
            self.torch.cuda.synchronize()
            captured = self.torch.cuda.CUDAGraph()
            # Another thread of this process watches NCCL; only this one is forbidden to disturb the capture.
            with self.torch.cuda.graph(captured, capture_error_mode="thread_local"):
                self._loop()
            self.launch = captured.replay
        return {"how": "graph" if self.cuda and self.graph else "eager"}

    def run(self) -> dict:
        """Run the window, all ranks from the same barrier on."""
        self.group.barrier()
        if not self.cuda:
            start = time.perf_counter()
            self.launch()
            return {"seconds": time.perf_counter() - start}
        cuda = self.torch.cuda
        cuda.synchronize()
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        if self.graph:
            cuda._sleep(SPIN_CYCLES)
        first.record()
        self.launch()
        last.record()
        last.synchronize()
        return {"seconds": first.elapsed_time(last) / 1e3}

    def nothing(self) -> dict:
        """Say that this rank is there."""
        return {}

    def _loop(self) -> None:
        for _ in range(self.calls):
            self.call()


def main() -> None:
    """Answer orders until the input ends."""
    rank = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if rank is None:
                rank = Rank(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
            said = getattr(rank, order.pop("do"))(**order)
        except Exception as error:  # whatever it was, the kit must be told; it ends this process then
            said = {"fault": f"{type(error).__name__}: {error}"[:300]}
        print(MARK + json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
