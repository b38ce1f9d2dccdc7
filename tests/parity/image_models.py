"""What comparisons of image models have in common."""

import torch

import regard
from regard.attention.capture.watch import watch

from .harness import exported_gradients


def same(found, expected, far=1e-10):
    torch.testing.assert_close(found, expected, rtol=far, atol=far)


def gradients_agree(theirs, expected, ours, found, table, named=lambda state: state):
    """The gradients of all their parameters, for one pull at the answers, are ours read through the table."""
    pull = torch.randn_like(expected)
    (expected * pull).sum().backward()
    (found * pull).sum().backward()
    mapped = exported_gradients(table, ours)
    wanted = {name: p.grad for name, p in named(dict(theirs.named_parameters())).items() if p.grad is not None}
    for name, gradient in wanted.items():
        torch.testing.assert_close(mapped[name], gradient, rtol=1e-7, atol=1e-9, msg=name)
    assert wanted.keys() == mapped.keys()


def maps_agree(theirs, ours, given, monkeypatch):
    """What their softmax gives, layer by layer, are the maps of ours."""
    maps, softmax = [], torch.Tensor.softmax

    def heard(self, *args, **kwargs):
        maps.append(softmax(self, *args, **kwargs))
        return maps[-1]

    with torch.no_grad():
        with watch(ours) as seen:
            ours(given)
        monkeypatch.setattr(torch.Tensor, "softmax", heard)
        theirs(given)
    assert len(maps) == len(seen) > 0
    for mine, wanted in zip(seen.traces(), maps, strict=True):
        torch.testing.assert_close(mine.weights, wanted, rtol=1e-9, atol=1e-12)


def there_and_back(theirs, told, module, x, folder):
    """A folder that timm wrote is read, written again, and read by timm: all three answer alike."""
    import timm

    timm.models.save_for_hf(theirs, folder / "theirs", model_args=told, safe_serialization=True)
    (folder / "theirs" / "pytorch_model.bin").unlink(missing_ok=True)
    model, shown = module.load(folder / "theirs")
    with torch.no_grad():
        expected = theirs(x)
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
        module.save(folder / "ours", model)
        again = timm.create_model(f"local-dir:{folder / 'ours'}", pretrained=True).eval()
        torch.testing.assert_close(again(x), expected, rtol=1e-4, atol=1e-4)
    assert regard.load(folder / "theirs").model.config == model.config
    return model, shown
