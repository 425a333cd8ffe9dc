"""The snippets of docs/gate.md, run as they stand there: each `run:` and `script:` line by /bin/sh."""

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import yaml

ROOT = Path(__file__).parents[1]
FAST = """import torch.nn.functional as F
from kernels.catalog import kernel

@kernel("attention", backend="pytorch")
def my_kernel(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
"""
WRONG = FAST.replace("scale=scale)", "scale=scale) * 2")
SLOW = FAST.replace("    return F", "    for _ in range(20):\n        out = F") + "    return out\n"
HERE = {
    "--gpu h200": "--gpu cpu",
    "--config canonical": "--config smoke",
    "kernels run canonical": "kernels run one.yaml",
    "--effort thorough": "",
    "--until-decided 20": "--until-decided 1",
    "--max-regression 2%": "--max-regression 90%",
}
"""What differs on this machine: a CPU, which others use meanwhile, in place of a quiet H200."""
WITHOUT_CHANGE = "${{ secrets.BENCHSITE_TOKEN }}", "${{ vars.BASE_RUN }}"


def snippets():
    """The YAML documents of the page, in order."""
    text = (ROOT / "docs" / "gate.md").read_text()
    found = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(found) == 2
    return [yaml.safe_load(one) for one in found]


def as_here(line, **values):
    """A line with what differs here, and with what GitHub fills in. Nothing of GitHub's stays."""
    for there, here in HERE.items():
        line = line.replace(there, here)
    filled = re.sub(r"\$\{\{ (?:secrets|vars)\.(\w+) \}\}", lambda found: values[found[1]], line)
    assert "${{" not in filled, filled
    return filled


def shell(script, folder, environment):
    return subprocess.run(
        ["/bin/sh", "-e"], input=script, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )


def told(gate, folder):
    """The word of a gate, in which status, terminal, Markdown and JUnit XML agree. A busy machine cannot tell."""
    word = {0: "holds", 1: "fails", 2: "cannot tell"}[gate.returncode]
    summary = (folder / "gate.md").read_text()
    sentence = summary.partition("\n")[0].strip("*")
    assert sentence.startswith(f"The gate {word}") and sentence in gate.stdout, gate.stdout + gate.stderr
    assert "| my-kernel" in summary
    cases = list(ElementTree.parse(folder / "gate.xml").iter("testcase"))
    assert cases and any("my-kernel" in case.get("name") for case in cases)
    assert any(case.find("failure") is not None for case in cases) == (word == "fails")
    assert any(case.find("error") is not None for case in cases) or word != "cannot tell"
    return word
