"""The demonstration writes its tables and picture, and they show what its text says."""

import csv

from codes.commands.exact_demo import main
from codes.study import demo


def test_tables_show_what_the_text_says(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "NFES", (2, 5, 20))
    assert main(["-o", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"wrote {tmp_path / 'trajectories.png'}" in printed
    assert (tmp_path / "trajectories.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with (tmp_path / "errors.csv").open() as file:
        rows = {(row["network"], row["method"]): row for row in csv.DictReader(file)}
    assert len(rows) == 2 * len(demo.TABLE)

    def error(network, method, nfe):
        return float(rows[network, method][str(nfe)])

    for network in ("exact", "imperfect"):
        others = [error(network, method.name, 5) for method in demo.TABLE if method.name != "mrsampler-pc"]
        assert error(network, "mrsampler-pc", 5) < 0.7 * min(others)
        assert error(network, "Posterior, published strides", 20) > 2 * error(network, "Posterior, correct strides", 20)
    assert error("imperfect", "MR Sampler-2 (SDE)", 2) > 3 * error("imperfect", "mrsampler-pc", 2)
