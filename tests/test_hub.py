"""Restorers in the layout of the Hugging Face Hub: in folders, which also stand for the Hub; never the network."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from codes import OptionsError, Restorer, load_restorer

huggingface_hub = pytest.importorskip("huggingface_hub")

IMAGE = torch.rand(3, 24, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def restorer(weights):
    return load_restorer(weights, device="cpu")


def test_a_saved_restorer_gives_the_same_image(restorer, tmp_path):
    folder = restorer.save_pretrained(tmp_path / "mine")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    loaded = Restorer.from_pretrained(folder, device="cpu")
    assert torch.equal(loaded(IMAGE, nfe=3, seed=4), restorer(IMAGE, nfe=3, seed=4))
    config = json.loads((folder / "config.json").read_text())
    assert config["which_model_G"] == "ConditionalNAFNet" and config["fit_target"] == restorer.fit_target
    assert config["sde"]["max_sigma"] == restorer.sde.max_sigma and config["solver"]["algorithm"] == "mrsampler"


def test_nothing_is_replaced_unasked(restorer, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(FileExistsError, match=r"README\.md: exists already"):
        restorer.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    restorer.save_pretrained(tmp_path, overwrite=True)
    assert (tmp_path / "README.md").read_text() != "mine"


def test_the_card_has_the_scores_where_the_hub_looks(restorer, tmp_path):
    restorer.save_pretrained(tmp_path / "mine", scores={"Rain100H": {"psnr": 31.4, "lpips": 0.05}})
    card = (tmp_path / "mine" / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    (model,) = head["model-index"]
    (result,) = model["results"]
    assert model["name"] == "mine" and result["dataset"] == {"type": "rain100h", "name": "Rain100H"}
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {"psnr": 31.4, "lpips": 0.05}
    assert head["library_name"] == "mr-sampler" and head["pipeline_tag"] == "image-to-image"
    assert huggingface_hub.ModelCard(card).data.license == "mit"


def test_an_address_is_downloaded_once_and_loaded(restorer, tmp_path, monkeypatch):
    folder, asked = restorer.save_pretrained(tmp_path / "mine"), []

    def download(repository, name, revision=None):
        asked.append((repository, name, revision))
        return str(folder / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    for address in ("hf://someone/mine@v1", Path("hf://someone/mine@v1")):
        assert torch.equal(load_restorer(address, device="cpu")(IMAGE, nfe=2), restorer(IMAGE, nfe=2))
    assert torch.equal(Restorer.from_pretrained("someone/mine", device="cpu")(IMAGE, nfe=2), restorer(IMAGE, nfe=2))
    assert asked == [("someone/mine", "model.safetensors", "v1")] * 2 + [("someone/mine", "model.safetensors", None)]


def test_what_the_hub_cannot_give_is_one_line():
    with pytest.raises(
        OptionsError, match=r"^hf://someone/nothing: model.safetensors cannot be had from the Hub: [^\n]+$"
    ):
        load_restorer("hf://someone/nothing")


@pytest.mark.parametrize("name", ["mine", "owner/mine/more", "owner/mi ne"])
def test_an_address_that_is_none_says_what_one_is(name):
    for address in (f"hf://{name}", Path(f"hf://{name}/")):
        with pytest.raises(OptionsError, match=r"^hf://[^\n]*: expected hf://owner/name, or hf://owner/name@revision$"):
            load_restorer(address)


def test_push_uploads_the_saved_folder(restorer, monkeypatch):
    done = []

    class Api:
        def __init__(self, token):
            done.append(token)

        def create_repo(self, repository, private, exist_ok):
            done.append((repository, private, exist_ok))

        def upload_folder(self, repo_id, folder_path, commit_message):
            done.append((repo_id, sorted(path.name for path in Path(folder_path).iterdir())))
            return "https://hub/someone/mine"

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert restorer.push_to_hub("someone/mine", private=True, token="secret") == "https://hub/someone/mine"
    assert done == [
        "secret",
        ("someone/mine", True, True),
        ("someone/mine", ["README.md", "config.json", "model.safetensors"]),
    ]
