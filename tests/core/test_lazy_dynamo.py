from __future__ import annotations

import subprocess
import sys
from textwrap import dedent


def alone(code: str, tmp_path) -> str:
    """What a program prints in a process of its own, where nothing has imported the compiler before."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part.py").write_text(
        dedent("""
        import torch
        from regard.core.lazy_dynamo import constant, uncompiled

        def inner(x):
            return x * (2 if torch.compiler.is_compiling() else 3)

        class Part(torch.nn.Module):
            @uncompiled
            def all(self, x):
                return inner(x)

            @uncompiled(recursive=False)
            def itself(self, x):
                return inner(x) + (1 if torch.compiler.is_compiling() else 0)

            def forward(self, x):
                return self.all(x + 1), self.itself(x + 1), loose(x + 1)

        @uncompiled
        def loose(x):
            return inner(x)

        @constant
        def seven():
            with open(__file__) as file:  # nothing that can be traced
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


def test_nothing_is_traced_once_the_compiler_is_there(tmp_path):
    said = alone(
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
    # itself(): its own line is Python, what it calls is compiled
    assert said.splitlines() == ["[6.0, 4.0, 6.0] [6.0, 6.0, 6.0]", "8.0", "True"]


def test_where_the_compiler_was_there_before_it_is_the_same(tmp_path):
    said = alone(
        """
        import torch, torch._dynamo
        from mine import part
        print([y[0].item() for y in torch.compile(part.Part(), backend="eager")(torch.ones(3))])
        """,
        tmp_path,
    )
    assert said.splitlines() == ["[6.0, 4.0, 6.0]"]


def test_everyday_commands_do_without_the_compiler(tmp_path):
    said = alone(
        """
        import sys
        from regard.cli import main
        for words in (["translate", "Hello.", "--to", "de"], ["translate", "Hello.", "--model", "gru-additive"],
                      ["pronounce", "dog"], ["classify", "Guten Tag", "--model", "languages"],
                      ["write", "7", "-o", "seven.png"], ["list"], ["show", "gpt"]):
            assert main(words) == 0, words
        print("torch._dynamo" in sys.modules)
        """,
        tmp_path,
    )
    assert said.splitlines()[-1] == "False"


def test_a_swin_on_a_cpu_does_without_the_compiler(tmp_path):
    said = alone(
        """
        import sys, torch, regard
        model = regard.build("swin", image_size=16, patch_size=2, width=8, heads=(1, 2), layers=(2, 2), window_size=4, num_classes=3)
        model(torch.zeros(2, 3, 16, 16)).sum().backward()
        print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
        """,
        tmp_path,
    )
    assert said.splitlines() == ["[]"]
