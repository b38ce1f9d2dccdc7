from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest


def run_program(code: str, tmp_path) -> str:
    """Return what a program prints in a new process, where torch._dynamo is not loaded yet."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part.py").write_text(
        dedent("""
        import torch
        from regard.core.lazy_dynamo import assume_constant_result, disable_compile

        def inner(x):
            return x * (2 if torch.compiler.is_compiling() else 3)

        class Part(torch.nn.Module):
            @disable_compile
            def all(self, x):
                return inner(x)

            @disable_compile(recursive=False)
            def itself(self, x):
                return inner(x) + (1 if torch.compiler.is_compiling() else 0)

            def forward(self, x):
                return self.all(x + 1), self.itself(x + 1), loose(x + 1)

        @disable_compile
        def loose(x):
            return inner(x)

        @assume_constant_result
        def seven():
            with open(__file__) as file:  # cannot be traced
                return 7 if file.read(1) else 8

        def add(x):
            return x + seven()
        """)
    )
    (tmp_path / "mine" / "other.py").write_text("from mine.part import loose\n")
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_disabled_functions_are_not_traced_once_dynamo_is_loaded(tmp_path):
    printed = run_program(
        """
        import sys, torch
        from mine import other, part
        assert "torch._dynamo" not in sys.modules
        plain = part.loose
        model = torch.compile(part.Part(), backend="eager")
        x = torch.ones(3)
        print([y[0].item() for y in model(x)], [y[0].item() for y in part.Part()(x)])
        print(torch.compile(part.add, backend="eager", fullgraph=True)(x)[0].item())
        print(part.loose is not plain and other.loose is part.loose)
        """,
        tmp_path,
    )
    # itself() runs as Python, what it calls is compiled
    assert printed.splitlines() == ["[6.0, 4.0, 6.0] [6.0, 6.0, 6.0]", "8.0", "True"]


@pytest.mark.long
def test_disabled_functions_are_not_traced_if_dynamo_was_loaded_before(tmp_path):
    printed = run_program(
        """
        import torch, torch._dynamo
        from mine import part
        print([y[0].item() for y in torch.compile(part.Part(), backend="eager")(torch.ones(3))])
        """,
        tmp_path,
    )
    assert printed.splitlines() == ["[6.0, 4.0, 6.0]"]


def test_common_commands_do_not_load_dynamo(tmp_path):
    printed = run_program(
        """
        import sys
        from regard.cli import main
        for words in (["translate", "Hello.", "--to", "de"], ["translate", "Hello.", "--model", "gru-additive"],
                      ["pronounce", "dog"], ["classify", "Guten Tag", "--model", "languages"],
                      ["handwrite", "7", "-o", "seven.png"], ["list"], ["show", "gpt"]):
            assert main(words) == 0, words
        print("torch._dynamo" in sys.modules)
        """,
        tmp_path,
    )
    assert printed.splitlines()[-1] == "False"


@pytest.mark.long
def test_swin_on_a_cpu_does_not_load_dynamo(tmp_path):
    printed = run_program(
        """
        import sys, torch, regard
        sizes = dict(image_size=16, patch_size=2, width=8, heads=(1, 2), layers=(2, 2), window_size=4, num_classes=3)
        model = regard.build("swin", **sizes)
        model(torch.zeros(2, 3, 16, 16)).sum().backward()
        print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
        """,
        tmp_path,
    )
    assert printed.splitlines() == ["[]"]
