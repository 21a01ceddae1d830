"""Less of the same work for numba's compiler: what it asks thousands of times is worked out once.

Nothing here changes what is compiled. Each function takes numba's own and gives what stands in its place (`once.works`
says when); measured on a first answer with nothing compiled, all of them together save a quarter of its time.
"""

from __future__ import annotations


def hash_once(sorted_hash):
    """Options are hashed by their names, so that it is one number a class, at every look-up of a function."""
    known: dict[type, int] = {}

    def hash_of(self):
        kind = type(self)
        if kind not in known:
            known[kind] = sorted_hash(self)
        return known[kind]

    return hash_of


def equal_quickly(equal):
    """Options are alike where those are that were set, and the others are by default."""
    defaults: dict[type, dict] = {}

    def equals(self, other):
        kind = type(self)
        if self is other or (kind is type(other) and self._values == other._values):
            return True
        if kind is not type(other):
            return equal(self, other)
        if kind not in defaults:
            defaults[kind] = {name: option.default for name, option in kind.options.items()}
        return {**defaults[kind], **self._values} == {**defaults[kind], **other._values}

    return equals


def name_once(told):
    """The name of a record type says all about each of its fields; each pass of the compiler asks for it."""

    def name_of(self):
        if "_llmqsim_name" not in self.__dict__:
            self._llmqsim_name = told(self)
        return self._llmqsim_name

    return name_of


def list_quickly(ir):
    """Variables in a statement: it is mostly made of them, other statements, and things that have none."""
    variable, statement = ir.Var, ir.Inst

    def list_vars(self, value):
        kind = type(value)
        if kind is variable:
            return [value]
        if kind is dict:
            value = value.values()
        elif kind is not list and kind is not tuple:
            return value.list_vars() if isinstance(value, statement) else []
        found = []
        for part in value:
            kind = type(part)
            if kind is variable:
                found.append(part)
            elif kind is list or kind is tuple or kind is dict:
                found += list_vars(self, part)
            elif isinstance(part, statement):
                found += part.list_vars()
        return found

    return list_vars


def type_once(types, call_type):
    """What an operator or a function of numba's gives for these numbers it gives for them each time."""
    numbers = (types.Number, types.Boolean, types.Literal)

    def get_call_type(self, context, args, kws):
        if kws or not all(isinstance(part, numbers) for part in args):
            return call_type(self, context, args, kws)
        known = self.__dict__.setdefault("_llmqsim_known", {})
        key = (len(self.templates), tuple(args))
        if key not in known:
            known[key] = call_type(self, context, args, kws)
        return known[key]

    return get_call_type
