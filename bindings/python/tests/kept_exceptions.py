"""The last reference to a handle goes while an exception is handled."""

import os
import weakref


def raises():
    raise KeyError("kept")


def check_exception_is_kept(last, in_child):
    """Drops the handle in the list `last`, its last reference, while an exception is raised: in a
    forked child, or here."""
    gone = weakref.ref(last[0])
    child = os.fork() if in_child else 0
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return
    kept = None
    try:
        (last.pop(), raises())
    except KeyError as error:
        kept = error.args
    finally:
        if in_child:
            os._exit(0 if (kept, gone()) == (("kept",), None) else 1)
    assert (kept, gone()) == (("kept",), None)
