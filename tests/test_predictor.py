"""Any network with forward(x, mu, t) can be sampled; what it offers besides is used."""

import pytest
import torch
from torch import nn

from codes.networks.predictor import predictor

from .network_examples import example, inputs


class Plain(nn.Module):
    """A foreign network that insists on times of shape (B,)."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x, mu, t):
        assert t.shape == (len(x),) and t.dtype == x.dtype
        return self.scale * (x - mu) * t.view(-1, 1, 1, 1)


class WithoutMu(nn.Module):
    takes_mu = False

    def forward(self, x, t):
        return x * t.view(-1, 1, 1, 1)


class Embedding(Plain):
    """A foreign network with the fast path."""

    def __init__(self):
        super().__init__()
        self.embedded = []

    def embed(self, time, context=None):
        assert context is None
        self.embedded.append(time)
        return 10 * time

    def evaluate(self, x, mu, embedding):
        return x + mu + embedding


X, MU = torch.rand(2, 3, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("t", [7, 7.0, torch.tensor(7.0), torch.full((3,), 7.0)])
def test_a_plain_network_gets_a_time_for_each_image(t):
    assert torch.equal(predictor(Plain())(X, MU, t), 2 * (X - MU) * 7)
    assert torch.equal(predictor(WithoutMu())(X, MU, t), X * 7)


def test_a_foreign_network_with_the_fast_path_embeds_each_time_once():
    network = Embedding()
    predict = predictor(network)
    for t in (5.0, 5.0, 2.0, 5.0):
        assert torch.equal(predict(X, MU, t), X + MU + 10 * t)
    assert network.embedded == [5.0, 2.0]


def test_predictions_are_float32_at_least_and_without_gradient():
    result = predictor(Plain())(X.half(), MU.half(), 1.0)
    assert result.dtype == torch.float32 and not result.requires_grad


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="text_context: Plain takes none"):
        predictor(Plain(), text_context=torch.zeros(1, 4))
    with pytest.raises(ValueError, match="network: expected a torch module, got function"):
        predictor(lambda x, mu, t: x)
    with pytest.raises(ValueError, match=r"t: expected one time for the batch, got \[1.0, 2.0, 3.0\]"):
        predictor(Plain())(X, MU, torch.tensor([1.0, 2.0, 3.0]))


def test_a_network_that_recognises_judges_the_whole_image_or_each_mu():
    network = example("coded", torch.float32)
    x, mu, _ = inputs("coded", dtype=torch.float32)
    judged = []
    recognise = network.recognise
    network.recognise = lambda images: (judged.append(images), recognise(images))[1]
    predict = predictor(network, degraded=mu)
    predict(x, mu, 5.0), predict(x, mu.clone(), 3.0)
    assert len(judged) == 1
    predict = predictor(network)
    other = mu.flip(0)
    results = [predict(x, given, 5.0) for given in (mu, mu, other)]
    assert len(judged) == 3 and torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
