"""describe and completion: what a checkpoint says about itself, and what a shell completes."""

import subprocess
from pathlib import Path

from codes.commands.main import COMMANDS, main

ROOT = Path(__file__).parent.parent


def test_weights_are_described(weights, capsys):
    assert main(["describe", str(weights)]) == 0
    first, size, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{weights}: ConditionalNAFNet (") and " tensors, " in size
    assert [line.split(":")[0].strip() for line in rest] == ["predicts", "schedule"]


def test_what_cannot_be_described_is_named(weights, tmp_path, capsys):
    photo = ROOT / "options" / "demo" / "GT" / "rocket.png"
    missing = tmp_path / "no.safetensors"
    assert main(["describe", str(missing), str(photo), "--opt", str(weights)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"{missing}: no such file")
    assert lines[1] == f"{photo}: the network of {weights} does not recognise degradations"


def test_bash_completes_commands_and_their_options(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        code = (
            f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _mr_sampler; echo ${{COMPREPLY[@]}}"
        )
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert completed("mr-sampler", "re") == ["restore", "reproduce"]
    assert set(completed("mr-sampler", "")) == {*COMMANDS, "--help", "--version"}
    assert completed("mr-sampler", "restore", "--al") == ["--algorithm"]
    assert completed("mr-sampler", "restore", f"{tmp_path}/comp") == [str(script)]
