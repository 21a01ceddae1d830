"""Result files of benchmark tools to cases: vLLM `bench serve`, SGLang `bench_serving`, GuideLLM, AIPerf.

Formats from memory. These files say what a client saw, not what served it: the user describes the server (`server.py`).
"""
