"""KeyErrors that are sentences."""


class WrongKey(KeyError):
    """A KeyError that prints its lines: the class itself prints a repr, in which they are one."""

    __module__, __qualname__ = "builtins", "KeyError"

    def __str__(self) -> str:
        return str(self.args[0])
