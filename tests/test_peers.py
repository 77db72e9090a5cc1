"""The comparison with peers: its tables, peers that cannot be had, and that a second run does nothing twice."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import peers
import pytest
from peer_parts import environments, own, rows, table

from codes.data.images import save_image
from codes.data.photos import PhotoError

ROOT = Path(__file__).parent.parent


def scores():
    """Two images: a peer that is better than ours in PSNR by 2 and 4 dB, and one that differs in nothing."""

    def each(psnr, lpips, seconds=None):
        entry = {"psnr": psnr, "ssim": 0.5, "lpips": lpips, "megapixels": 0.5}
        return entry if seconds is None else {**entry, "seconds": seconds}

    return {
        table.INPUT: {"a": each(10, 0.9), "b": each(12, 0.7)},
        "MR Sampler, default": {"a": each(20, 0.3, 1.0), "b": each(30, 0.2, 1.0)},
        "strong": {"a": each(22, 0.3, 10.0), "b": each(34, 0.2, 10.0)},
        "like ours": {"a": each(21, 0.2, 0.1), "b": each(29, 0.3, 0.1)},
    }


def test_rows_have_means_differences_with_standard_errors_and_seconds_per_megapixel():
    first, ours, strong, same = table.rows_of(scores(), {"strong": "told everything"}, "MR Sampler, default")
    assert (first.psnr, first.seconds, first.psnr_gain) == (11, None, None)
    assert (ours.psnr, ours.seconds, ours.psnr_gain) == (25, 2.0, None)
    assert strong.psnr_gain == (3.0, 1.0) and strong.note == "told everything" and strong.seconds == 20.0
    assert table.gain_text(strong.psnr_gain, 2) == "+3.00 ± 1.00"
    assert table.gain_text(same.psnr_gain, 2) == table.gain_text(same.lpips_gain, 3) == "none"
    text = table.table([first, ours, strong, same])
    assert "| strong | 28.00 | +3.00 ± 1.00 | 0.500 | 0.250 | none | 20 |" in text
    assert "| like ours | 25.00 | none |" in text and "| 0.20 |" in text


def test_sentences_say_who_wins_and_what_it_costs():
    every = table.rows_of(scores(), {}, "MR Sampler, default")
    assert table.sentence(every, "MR Sampler, default") == (
        "strong is better by 3.00 ± 1.00 dB; it takes 10.0 times the processor time of ours."
    )
    weak = [every[1], replace(every[3], psnr_gain=(-2.0, 0.1))]
    assert table.sentence(weak, "MR Sampler, default") == (
        "Ours is better than like ours, the best peer, by 2.00 ± 0.10 dB; "
        "it takes 1/10.0 of the processor time of ours."
    )
    assert "there is no difference in PSNR" in table.sentence([every[1], every[3]], "MR Sampler, default")
    assert table.sentence(every[:2], "MR Sampler, default") == "No peer."


def test_the_committed_page_is_rendered_from_the_committed_numbers():
    results = json.loads((ROOT / "docs" / "peers.json").read_text())
    assert (ROOT / "docs" / "peers.md").read_text() == table.page(results)
    every = table.from_json(results)
    facts = {key: value for key, value in results.items() if key != "tasks"}
    assert json.loads(json.dumps(table.to_json(every, facts))) == results
    bm3d = [row.note for row in every["noisy"] if row.title == "BM3D"]
    assert all("non-commercial" in note for note in bm3d)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Two noisy photographs, a stand-in for our network, a peer that runs and two that do not."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        save_image(rng.integers(0, 255, (80, 90, 3), dtype=np.uint8), tmp_path / "sets" / "CBSD68" / f"{name}.png")
    calls = []

    def unchanged(files, options):
        def restore(image, holes):
            calls.append(image.shape)
            return np.full_like(image, 128) if options.get("grey") else image

        return restore

    monkeypatch.setattr(own, "METHODS", {"ours": unchanged, "grey": unchanged})
    ours, *_ = rows.peers("pretrained/mr-universal.safetensors")
    chosen = (
        ours,
        rows.Peer(name="grey", title="grey", tasks=("noisy",), method="grey", options={"grey": True}),
        rows.Peer(name="absent", title="absent", tasks=("noisy",), method="grey", archive="npm:no-such@1"),
        # In this environment, which does not have it.
        rows.Peer(name="bm3d", title="BM3D", tasks=("noisy",), method="bm3d_colour.py", options={"sigma": 50}),
    )
    monkeypatch.setattr(rows, "peers", lambda weights: chosen)

    def refuse(package, sha256, folder):
        raise PhotoError(f"{package}: not found")

    monkeypatch.setitem(environments._FETCH, "npm", refuse)
    arguments = ["--testsets", str(tmp_path / "sets"), "--images", "2", "--size", "64", "--cache", str(tmp_path / "c")]
    return tmp_path, [*arguments, "-o", str(tmp_path / "out"), "--document", str(tmp_path / "peers.md")], calls


def test_it_goes_on_without_a_peer_that_cannot_be_had(world, capsys):
    from codes.metrics import MissingWeights, find_weights

    try:
        find_weights("lpips")
    except MissingWeights:
        pytest.skip("no LPIPS weights")
    folder, arguments, calls = world
    assert peers.main(arguments) == 0
    printed = capsys.readouterr()
    assert "absent: left out: no-such@1: not found" in printed.err
    assert "BM3D: left out: bm3d_colour.py failed: ModuleNotFoundError: No module named 'bm3d'" in printed.err
    assert "Rain100H: " in printed.err and "name it with --testsets" in printed.err
    text = (folder / "peers.md").read_text()
    assert "| grey |" in text and "| absent |" not in text and "- absent: no-such@1: not found" in text
    # What is unchanged scores as the degraded image does.
    results = json.loads((folder / "peers.json").read_text())
    degraded, ours, grey = results["tasks"]["noisy"]
    assert degraded["psnr"] == ours["psnr"] and ours["lpips"] == pytest.approx(degraded["lpips"])
    assert grey["psnr_gain"][0] == pytest.approx(grey["psnr"] - ours["psnr"])
    # Again: nothing is restored twice, and the page is the same.
    done = len(calls)
    assert peers.main(arguments) == 0
    assert len(calls) == done and (folder / "peers.md").read_text() == text


def test_bad_arguments_are_named(world, capsys):
    _, arguments, _ = world
    for more, message in (
        (["--only", "none-such"], "--only: no peer none-such (known: ours, grey, absent, bm3d)"),
        (["--images", "1"], "--images must be at least 2"),
        (["--document", "/no/such/page.md"], "--document: no folder /no/such"),
    ):
        with pytest.raises(SystemExit) as stop:
            peers.main([*arguments, *more])
        assert stop.value.code == 2 and message in capsys.readouterr().err


def test_without_any_images_nothing_is_installed(tmp_path, capsys):
    assert peers.main(["--testsets", str(tmp_path / "none"), "-o", str(tmp_path / "out")]) == 2
    assert "CBSD68, Gaussian noise of 50: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_ffdnet_moves_every_pixel_to_its_place():
    """With weights that pass the first twelve channels on, the network is the identity."""
    import torch

    network = own.FFDNet(width=13, layers=3)
    for layer in network.model[::2]:
        torch.nn.init.dirac_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    image = torch.rand(1, 3, 8, 10)
    assert torch.equal(network(image, 0.2), image)


def test_every_peer_says_what_it_installs_and_is_pinned():
    for peer in rows.peers("weights"):
        assert all("==" in package for package in peer.installs)
        assert not peer.archive or len(peer.sha256) == 64
        assert peer.note or peer.method == "ours"
        worker = ROOT / "scripts" / "peer_parts" / "workers" / peer.method
        assert peer.method in own.METHODS or worker.is_file()
