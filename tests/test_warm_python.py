"""The process that runs programs for tests: when it ends, one test fails and the next has a new one."""

import pytest

from tests.warm_python import WarmPython


@pytest.mark.long
def test_a_program_that_ends_the_process_fails_alone(tmp_path):
    programs = WarmPython(tmp_path)
    with pytest.raises(AssertionError, match="not done"):
        programs("import os; os.kill(os.getppid(), 9); import time; time.sleep(1)")
    assert programs("print('next')") == "next\n"
    programs.close()
