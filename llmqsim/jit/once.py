"""Compile each kernel once: linked and optimised where Python calls, not again at every level below.

numba finishes every function with all that it calls linked in, so a function at the bottom is optimised and made
machine code once for each level above it. Here a kernel has two faces: the one that Python calls, finished as numba
does it, and the one that other kernels call, which stays unfinished and is linked into its callers. That takes things
of numba's that are not public; where they are not known to be as they were tested, `works` says no, and kernels compile
in numba's own way, with the same results.
"""

from __future__ import annotations

import gc
import os
from contextlib import nullcontext
from functools import cache

import numba

from llmqsim.jit import quick

OFF = "LLMQSIM_PLAIN_NUMBA"
"""environment variable: set (and not empty), kernels compile in numba's own way"""
_FIRST, _BEYOND = (0, 61), (0, 69)
"""versions of numba: the oldest tested one, and the first one that is not"""
_WRAPPER = "_ZN7cpython"
"""how names of functions begin that Python can call"""
_depth = 0
"""calls from Python that are being compiled; guarded by numba's compiler lock"""


@cache
def works() -> bool:
    """True where numba's inside is as tested; then it is prepared for `whole`."""
    if os.environ.get(OFF) or not _FIRST <= numba.version_info.short < _BEYOND:
        return False
    try:
        from numba.core import codegen, event, ir, targetconfig, types
        from numba.core.types import functions

        finalize = codegen.CPUCodeLibrary.finalize
        pointer = codegen.JITCodeLibrary.get_pointer_to_function
        set_env = codegen.JITCPUCodegen.set_env
        sorted_hash, equal = targetconfig.TargetConfig.__hash__, targetconfig.TargetConfig.__eq__
        told, call_type = types.Record.__repr__, functions.BaseFunction.get_call_type
        ir.Inst._rec_list_vars, event.install_timer  # noqa: B018  (AttributeError where they are not)
        for name in ("_get_module_for_linking", "_optimize_final_module", "_finalize_final_module"):
            getattr(codegen.CPUCodeLibrary, name)
    except (ImportError, AttributeError):
        return False
    codegen.CPUCodeLibrary.finalize = _finalize_later(finalize)
    codegen.JITCodeLibrary.get_pointer_to_function = _pointer_when_asked(pointer)
    codegen.JITCPUCodegen.set_env = _set_env_where_it_is(set_env)
    targetconfig.TargetConfig.__hash__ = quick.hash_once(sorted_hash)
    targetconfig.TargetConfig.__eq__ = quick.equal_quickly(equal)
    types.Record.__repr__ = quick.name_once(told)
    ir.Inst._rec_list_vars = quick.list_quickly(ir)
    functions.BaseFunction.get_call_type = quick.type_once(types, call_type)
    return True


def whole(called):
    """The dispatcher, so that it compiles with all that its function calls inside, each kernel once."""
    compile_signature = called.compile

    def compile_whole(signature):
        """Compile for a call from Python; all that is made meanwhile for it alone stays unfinished."""
        global _depth
        from numba.core import event
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:
            collects, timer = gc.isenabled(), event.install_timer
            gc.disable()  # compiling makes millions of objects that live until its end
            event.install_timer = _no_timer  # one a function, each of which hears of each call of LLVM
            _depth += 1
            try:
                return compile_signature(signature)
            finally:
                _depth -= 1
                event.install_timer = timer
                if collects:
                    gc.enable()

    called.compile = compile_whole
    return called


def part(called):
    """The dispatcher, for other kernels: made for numbers, not once for each number that is written in a call."""
    from numba.core import types

    template = called.get_call_template

    def get_call_template(args, kws):
        return template([types.unliteral(each) for each in args], {key: types.unliteral(each) for key, each in kws.items()})

    called.get_call_template = get_call_template
    return called


def _no_timer(kind, callback):
    return nullcontext()


def _finalize_later(finalize):
    """Finish a library as far as others need it to link it in, unless Python calls it."""

    def finalize_library(self):
        if _depth == 0 or any(_is_wrapper(function) for function in self._final_module.functions):
            return finalize(self)
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = self._unfinished = True

    return finalize_library


def _is_wrapper(function) -> bool:
    return function.name.startswith(_WRAPPER) and not function.is_declaration


def _pointer_when_asked(pointer):
    """Machine code of an unfinished library is made when somebody asks where it is."""

    def get_pointer_to_function(self, name):
        self._ensure_finalized()
        if getattr(self, "_unfinished", False):
            if not any(f.name == name and not f.is_declaration for f in self._final_module.functions):
                return 0
            self._unfinished, self._dynamic_globals = False, []
            self._optimize_final_module()
            self._final_module.verify()
            self._finalize_final_module()
        return pointer(self, name)

    return get_pointer_to_function


def _set_env_where_it_is(set_env):
    """An unfinished library has no place yet for its environment, which only errors and Python objects need."""

    def set_env_of(self, env_name, env):
        if self._engine.get_global_value_address(env_name):
            set_env(self, env_name, env)

    return set_env_of
