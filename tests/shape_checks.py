"""Shapes in signatures are checked in the first calls of every test; the same calls later in a loop run unchecked.

Checking doubles the time of a small model's forward pass, and a training loop or a search repeats the same calls.
"""

import functools

import jaxtyping
from beartype import beartype

CHECKS = 250  # in each test, of arguments, or of arguments and result: about three passes of a small model
_left = CHECKS


def restart():
    """Check the next calls."""
    global _left
    _left = CHECKS
    jaxtyping.config.update("jaxtyping_disable", False)


def check_first_calls(function):
    """Type-check `function` until the test has used up its checks."""
    checker = functools.cache(lambda: beartype(function))  # made when it is first needed: most functions never are

    @functools.wraps(function)
    def call(*args, **kwargs):
        global _left
        _left -= 1
        if _left < 0:
            jaxtyping.config.update("jaxtyping_disable", True)
            return None
        return checker()(*args, **kwargs)

    return call
