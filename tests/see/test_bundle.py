"""Bundling JavaScript modules: exports reach their importers, unsupported forms raise."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from regard.see.bundle import bundle

MODULES = {
    "main.js": """/** import { nothing } from "./comment.js"; */
import { add, TWO as two } from "./numbers.js";
import * as words from "./token_text.js";
import "./effect.js";

const later = await import("./later.js");
const { name } = new words.Thing();
console.log(add(two, two), words.say("it"), name, globalThis.effect, later.mount(), words.again(1, 2));
""",
    "numbers.js": "export const TWO = 2;\nexport function add(a, b) {\n  return a + b;\n}\nconst hidden = 1;\n",
    "token_text.js": """import {
  add,
} from "./numbers.js";
const hidden = "said ";
const say = (word) => hidden + word;
export { say };
export { add as again } from "./numbers.js";
export class Thing { name = "thing"; }
""",
    "effect.js": "globalThis.effect = 'done';\n",
    "later.js": "export async function unused() {}\nexport function mount() { return 'late'; }\n",
}


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here to run the script")
def test_bundle_runs_like_the_modules():
    text = bundle("main.js", MODULES.__getitem__)
    done = subprocess.run(["node", "-"], input=text, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "4 said it thing done late 3"


def test_module_comes_once_and_after_its_dependencies():
    text = bundle("main.js", MODULES.__getitem__)
    order = [
        text.index(f"modules['{name}'] = ")
        for name in ("numbers.js", "token_text.js", "effect.js", "later.js", "main.js")
    ]
    assert order == sorted(order)
    assert text.count("modules['numbers.js'] = ") == 1


@pytest.mark.parametrize(
    "line",
    ["export let x = 1;", "export default 1;", "import x from './a.js';", "await import(name);", "import.meta.url;"],
)
def test_unsupported_forms_raise(line):
    with pytest.raises(ValueError, match="form"):
        bundle("a.js", {"a.js": f"{line}\n"}.__getitem__)


def test_import_cycles_and_script_ends_raise():
    with pytest.raises(ValueError, match=r"a\.js -> b\.js -> a\.js"):
        bundle("a.js", {"a.js": 'import "./b.js";', "b.js": 'import "./a.js";'}.__getitem__)
    with pytest.raises(ValueError, match="cannot be inlined"):
        bundle("a.js", {"a.js": "const x = '</SCRIPT>';"}.__getitem__)


def test_importing_a_missing_export_raises():
    modules = {"a.js": 'import { one, two as other } from "./b.js";', "b.js": "export const one = 1;"}
    with pytest.raises(ValueError, match=r"a\.js imports two from b\.js"):
        bundle("a.js", modules.__getitem__)
