"""Text embedding: texts in, one vector each out; similar texts have similar vectors.

    input        Text
    output       Embedding; a call returns the vectors of all texts as one tensor
    pooling      first: the vector of [CLS]     mean: of all tokens, special ones included     max: of each coordinate
    normalize    then divided by its length, so that a product of two is the cosine of their angle

Texts are batched by length; on a CPU with kernels for few rows (runtime/few_rows.py) short ones in batches of so few.
Where the model can, they are concatenated, so that nothing is computed for padding (attention/varlen.py); otherwise
they are padded and the padding is masked, with the same result. A text longer than the model takes is refused; with
``overflow="split"`` it is split between words into parts of equal length, and its vector is the mean of theirs,
weighted by tokens.

Reimers, Gurevych: Sentence-BERT. EMNLP 2019. arXiv:1908.10084
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from regard.attention.varlen import has_varlen_kernel
from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.shapes import Float, Int, Tensor
from regard.data.ragged import RaggedTensor
from regard.modalities.embedding import Embedding
from regard.runtime.direct_blocks import has_direct_blocks
from regard.runtime.few_rows import MAX_ROWS
from regard.tasks.text.encoder_base import EncoderPredictor, check_texts

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

POOLING_MODES = ("mean", "first", "max")
BATCH_TOKENS = {"cpu": 1024, "cuda": 32_768}  # tokens of a batch: what fits the caches of a CPU, what fills a GPU


@dataclass(frozen=True)
class Options:
    """Options of `TextEmbedder`."""

    overflow: Literal["error", "split"] = field(
        "error", help="what to do with a text longer than the model takes: refuse it, or read it in parts"
    )


class TextEmbedder(EncoderPredictor):
    """Texts in, vectors out.

        embed = regard.load("minilm")
        embed(["A cat sat on the mat.", "The feline rested on the rug."])       2 C, on the CPU, float32
        embed("A cat sat on the mat.")                                          C

    Args:
        max_length: most tokens of a text, special ones included.
        prompt: written before every text ("query: ").
        include_prompt: whether the prompt's tokens, [CLS] among them, are pooled too.
        truncate_dim: how many coordinates of a vector are returned, after normalising; None: all.
    """

    outputs = Embedding
    options = Options
    examples = (
        "The animal didn't cross the street because it was too tired.",
        "A cat sat on the mat.",
        "The feline rested on the rug.",
    )

    def __init__(
        self,
        model: nn.Module,
        text: Tokenizer,
        pooling: str = "mean",
        normalize: bool = True,
        max_length: int | None = None,
        prompt: str = "",
        include_prompt: bool = True,
        truncate_dim: int | None = None,
    ) -> None:
        if pooling not in POOLING_MODES:
            raise UnknownName(f"no pooling is called '{pooling}'; {did_you_mean(pooling, POOLING_MODES)}")
        super().__init__(model, text, max_length)
        self.pooling, self.normalize, self.truncate_dim = pooling, normalize, truncate_dim
        self.prompt, self.include_prompt = prompt, include_prompt
        self._prompt_tokens = len(text.encode_one(prompt)) if prompt else 0
        if self._prompt_tokens > self.room - 3:
            raise BadInput(f"the prompt has {self._prompt_tokens} tokens; the model reads {self.room} with its text")

    def __call__(self, *inputs: Any, **options: Any) -> Float[Tensor, "B C"]:
        """Return the vectors of a list of texts, B C; of a single text its vector, C."""
        texts, is_single = self.read(inputs)
        found = self.embed(texts, self.make_options(options).overflow)
        return found[0] if is_single else found

    def predict(self, batch: list[Any], options: Options) -> list[Embedding]:
        return [Embedding(vector) for vector in self.embed(batch, options.overflow)]

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], overflow: Literal["error", "split"] = "error") -> Float[Tensor, "B C"]:
        """Return the vector of every text."""
        texts = check_texts(texts)
        rows, owners = self._parts(self.text.encode([self.prompt + text for text in texts]), overflow)
        found = torch.zeros(len(rows), self.model.config.width)  # type: ignore[union-attr, arg-type]
        for some, vectors in self._read(rows):
            found[some] = vectors
        if len(rows) > len(texts):
            sizes = torch.tensor([len(row) for row in rows], dtype=found.dtype)
            whole = torch.zeros(len(texts)).index_add_(0, owners, sizes)
            share = (sizes / whole[owners])[:, None]
            found = torch.zeros(len(texts), found.shape[1]).index_add_(0, owners, found * share)
        return (nn.functional.normalize(found, dim=-1) if self.normalize else found)[:, : self.truncate_dim].clone()

    def similarity(self, other: TextEmbedder, texts: Sequence[str]) -> Float[Tensor, " B"]:
        """Return the cosine of the vectors that two embedders give every text; long texts are read in parts."""
        return nn.functional.cosine_similarity(self.embed(texts, "split"), other.embed(texts, "split"))

    def encode(self, text: str) -> list[int]:
        return super().encode(self.prompt + text)

    def _parts(self, ids: list[list[int]], overflow: str) -> tuple[list[list[int]], Int[Tensor, " R"]]:
        """Return rows of token ids with prompt and special tokens, several for a long text, and their texts."""
        if overflow not in ("error", "split"):
            raise UnknownName(
                f"overflow must be 'error' or 'split', got {overflow!r}; {did_you_mean(overflow, ('error', 'split'))}"
            )
        rows, owners, capacity = list[list[int]](), list[int](), self.room - 2
        for number, text in enumerate(ids):
            if len(text) > capacity and overflow == "error":
                raise BadInput(
                    f"text {number + 1} has {len(text) + 2} tokens with special tokens, but this model takes "
                    f"{self.room}; shorten it, or read it in parts (overflow='split'; --split on the command line)"
                )
            prompt, rest = text[: self._prompt_tokens], text[self._prompt_tokens :]
            for part in self._cut(rest, capacity - len(prompt)):
                rows.append(self.text.with_special_tokens(prompt + part)[0])
                owners.append(number)
        return rows, torch.tensor(owners, dtype=torch.long)

    def _cut(self, ids: list[int], capacity: int) -> Iterator[list[int]]:
        """Yield parts of about equal length, split between words where possible."""
        while len(ids) > capacity:
            many = -(-len(ids) // capacity)
            at = min(capacity, -(-len(ids) // many))
            inside = [piece.startswith("##") for piece in self.text.pieces(ids[: at + 1])]
            at = next((i for i in range(at, 0, -1) if not inside[i]), at)
            yield ids[:at]
            ids = ids[at:]
        yield ids

    def _read(self, rows: list[list[int]]) -> Iterator[tuple[Int[Tensor, " S"], Float[Tensor, "S C"]]]:
        """Yield batches of rows, shortest first, and their vectors."""
        if not rows:
            return
        flat, parameter = RaggedTensor.from_rows(rows), next(self.model.parameters())
        device, model = parameter.device, _packing_model(self.model)
        packed = model is not None and (device.type == "cpu" or has_varlen_kernel(device, parameter.dtype))
        order = torch.sort(flat.lengths, stable=True).indices
        ordered = flat.lengths[order].tolist()
        limit = BATCH_TOKENS.get(device.type, BATCH_TOKENS["cuda"])
        few = bisect_right(ordered, MAX_ROWS // 2) if has_direct_blocks(self.model) else 0  # short texts
        for some in (
            *_batches(ordered[:few], min(limit, MAX_ROWS), not packed),
            *_batches(ordered[few:], limit, not packed, first=few),
        ):
            check_cancelled()
            picked = order[some]
            lengths = flat.lengths[picked]
            tokens, _ = flat.pad(picked, self.text.pad)
            longest = tokens.shape[1]
            there = lengths.to(device)
            if int(lengths[0]) == longest:  # sorted: all have the same length
                x = self.model.hidden(tokens.to(device)).flatten(0, 1)  # type: ignore[operator]
            else:
                real = torch.arange(longest) < lengths[:, None]
                if packed:
                    x = model.hidden_packed(tokens[real].to(device), there, longest=longest)
                else:
                    x = self.model.hidden(tokens.to(device), None, there)[real.to(device)]  # type: ignore[operator]
            yield picked, self._pooled(x.float(), there).cpu()

    def _pooled(self, x: Float[Tensor, "T C"], lengths: Int[Tensor, " S"]) -> Float[Tensor, "S C"]:
        """Return one vector of each text, from the vectors of concatenated texts."""
        if self._prompt_tokens and not self.include_prompt:
            skipped = (lengths - 1).clamp(max=1 + self._prompt_tokens)  # [CLS] and the prompt
            starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
            x = x[torch.arange(len(x), device=x.device) - starts >= skipped.repeat_interleave(lengths)]
            lengths = lengths - skipped
        if self.pooling == "first":
            return x[lengths.cumsum(0) - lengths]
        return torch.segment_reduce(x, self.pooling, lengths=lengths, unsafe=True)


def _packing_model(model: Any) -> Any:
    """Return the model if it can read concatenated texts, else None."""
    return model if getattr(model, "can_pack", False) else None


def _batches(lengths: list[int], tokens: int, padded: bool, first: int = 0) -> Iterator[slice]:
    """Yield slices of sorted lengths of about equal size, at most `tokens` tokens each, counted from `first` on.

    `padded`: padding counts.
    """
    if not lengths:
        return
    start = total = 0
    whole = sum(lengths)
    tokens = -(-whole // -(-whole // tokens))  # not full ones and a rest
    for i, length in enumerate(lengths):
        more = length * (i + 1 - start) if padded else total + length
        if i > start and more > tokens:
            yield slice(first + start, first + i)
            start, more = i, length
        total = more
    yield slice(first + start, first + len(lengths))


def nearest_vectors(
    queries: Float[Tensor, "Q C"], vectors: Float[Tensor, "B C"], k: int = 5
) -> tuple[Float[Tensor, "Q k"], Int[Tensor, "Q k"]]:
    """Return the cosines, largest first, and the indices of the k vectors nearest to each query."""
    if k < 1:
        raise BadInput(f"k must be at least 1, got {k}")
    each, all_ = (nn.functional.normalize(x, dim=-1) for x in (queries, vectors))
    scores, found = (each @ all_.mT).topk(min(k, len(vectors)))
    return scores, found
