"""Timing windows on CUDA, on a stand-in for torch.cuda that writes down what it is asked to do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llmqsim.cli_measure import load_kit


class FakeCuda:
    """torch.cuda as far as windows use it; writes down what it was asked to do, in order."""

    class OutOfMemoryError(RuntimeError):
        pass

    def __init__(self, refuses=False):
        self.did, self.refuses = [], refuses
        cuda = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                cuda.did.append("event")

            def synchronize(self):
                cuda.did.append("wait")

            def elapsed_time(self, other):
                return 2.0

        class Nothing:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                return False

            def wait_stream(self, other):
                pass

            def replay(self):
                cuda.did.append("replay")

        class Capture(Nothing):
            def __enter__(self):
                if cuda.refuses:
                    raise RuntimeError("operation not permitted when stream is capturing")
                cuda.did.append("capture")

        self.Event, self.Stream, self.CUDAGraph = Event, Nothing, Nothing
        self.stream, self.graph = lambda stream: Nothing(), lambda graph: Capture()
        self.current_stream, self.synchronize = Nothing, lambda: None
        self._sleep = lambda cycles: self.did.append("spin")


def test_a_window_on_cuda_is_a_graph_between_two_events():
    windows, cuda = load_kit("torch_kernels.windows"), FakeCuda()
    on_gpu = SimpleNamespace(is_cpu=False, torch=SimpleNamespace(cuda=cuda))
    prepared = windows.TorchPrepared(on_gpu, [lambda: cuda.did.append("a"), lambda: cuda.did.append("b")])
    run = prepared.window(5)
    assert cuda.did == ["a", "capture", "a", "b", "a", "b", "a"], "one call before, then every call goes round"
    cuda.did.clear()
    assert run() == pytest.approx(2e-3)
    assert cuda.did == ["spin", "event", "replay", "event", "wait"] and prepared.how == "graph"


def test_what_cannot_be_captured_is_launched_call_by_call_and_marked():
    windows, cuda = load_kit("torch_kernels.windows"), FakeCuda(refuses=True)
    on_gpu = SimpleNamespace(is_cpu=False, torch=SimpleNamespace(cuda=cuda))
    prepared = windows.TorchPrepared(on_gpu, [lambda: cuda.did.append("a")])
    run = prepared.window(2)
    cuda.did.clear()
    run()
    assert cuda.did == ["event", "a", "a", "event", "wait"] and prepared.how == "eager"
