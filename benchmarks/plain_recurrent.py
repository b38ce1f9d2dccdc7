"""Recurrent translators in plain PyTorch, as tutorials and OpenNMT's models are laid out: peers for recurrent.py.

    PlainRNNsearch   a GRU with additive attention: packed encoder, the score over [state; position] at every step, a
                     `GRUCell`, the output layer at every step; beam search in a Python loop, the memory copied for
                     every beam: a sentence at a time, or a whole batch
    PlainLuong       an LSTM with input feeding: packed encoder, `LSTMCell`, general attention, tanh of a joined
                     vector, the output layer for all steps at once

Both copy the weights of Regard's models, so that they compute the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class _Plain(nn.Module):
    """Embeddings and encoder of both models."""

    def __init__(self, original: Any, network: type[nn.RNNBase]) -> None:
        super().__init__()
        c = original.config
        self.bos, self.eos, self.hidden = c.bos, c.eos, c.hidden
        self.embed = nn.Embedding.from_pretrained(
            original.embed.weight.detach().clone(), freeze=False, padding_idx=c.pad
        )
        self.encoder = network(c.width, c.hidden, batch_first=True, bidirectional=True)
        for suffix, part in (
            ("", original.encoder.forward_layers[0]),
            ("_reverse", original.encoder.backward_layers[0]),
        ):
            for name, value in part.named_parameters():
                getattr(self.encoder, name + suffix).data.copy_(value)
        self.first = _copy(original.decoder.start_from.map)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return memory, padding mask, and the initial state."""
        packed = pack_padded_sequence(self.embed(source), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        back = (last[0] if isinstance(last, tuple) else last)[-1]
        padding = torch.arange(source.shape[1], device=source.device)[None] >= lengths[:, None]
        return memory, padding, torch.tanh(self.first(back))


class PlainRNNsearch(_Plain):
    """Bahdanau's model."""

    def __init__(self, original: Any) -> None:
        super().__init__(original, nn.GRU)
        decoder = original.decoder
        self.cell = copy_cell(nn.GRUCell, decoder.cells.cells[0])
        self.attend = nn.Linear(3 * self.hidden, decoder.aligner.score.in_features, bias=False)
        self.attend.weight.data.copy_(torch.cat([decoder.aligner.query.weight, decoder.aligner.memory.weight], 1))
        self.score = _copy(decoder.aligner.score)
        self.readout = _copy(decoder.output.readout)

    def step(self, token: Tensor, state: Tensor, memory: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and next state after one token of every row."""
        token = self.embed(token)
        query = state[:, None].expand(-1, memory.shape[1], -1)
        scores = self.score(torch.tanh(self.attend(torch.cat([query, memory], -1)))).squeeze(-1)
        weights = scores.masked_fill(padding, float("-inf")).softmax(-1)
        context = torch.bmm(weights[:, None], memory).squeeze(1)
        state = self.cell(torch.cat([token, context], -1), state)
        units = self.readout(torch.cat([state, context, token], -1))
        return torch.maximum(units[:, 0::2], units[:, 1::2]) @ self.embed.weight.T, state

    def forward(self, source: Tensor, target: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits of the token after each target token."""
        memory, padding, state = self.encode(source, lengths)
        outputs = []
        for t in range(target.shape[1]):
            logits, state = self.step(target[:, t], state, memory, padding)
            outputs.append(logits)
        return torch.stack(outputs, 1)

    @torch.no_grad()
    def beam_one(self, source: Tensor, length: Tensor, beams: int, steps: int) -> list[int]:
        """Search one sentence; beams are rows with copies of the memory; never ends before `steps`."""
        memory, padding, state = self.encode(source[None], length[None])
        totals, paths = [0.0], [[self.bos]]
        for _ in range(steps):
            rows = len(paths)
            last = torch.tensor([path[-1] for path in paths], device=source.device)
            repeated = memory.repeat(rows, 1, 1), padding.repeat(rows, 1)
            logits, state = self.step(last, state, *repeated)
            logits[:, [0, self.eos]] = float("-inf")
            scores = logits.float().log_softmax(-1) + torch.tensor(totals, device=source.device)[:, None]
            best, index = scores.flatten().topk(beams)
            parents, tokens = (index // logits.shape[1]).tolist(), (index % logits.shape[1]).tolist()
            totals, paths = best.tolist(), [[*paths[p], w] for p, w in zip(parents, tokens, strict=True)]
            state = state[parents]
        return paths[0][1:]

    @torch.no_grad()
    def beam_batch(self, source: Tensor, lengths: Tensor, beams: int, steps: int) -> list[list[int]]:
        """Search all sentences at once, every beam with its copy of the memory."""
        batch, device = len(source), source.device
        memory, padding, state = (x.repeat_interleave(beams, 0) for x in self.encode(source, lengths))
        paths = torch.full((batch * beams, 1), self.bos, device=device)
        totals = torch.full((batch, beams), float("-inf"), device=device)
        totals[:, 0] = 0.0
        for _ in range(steps):
            logits, state = self.step(paths[:, -1], state, memory, padding)
            logits[:, [0, self.eos]] = float("-inf")
            scores = logits.float().log_softmax(-1).view(batch, beams, -1) + totals[..., None]
            totals, index = scores.flatten(1).topk(beams)
            rows = (index // logits.shape[1] + torch.arange(batch, device=device)[:, None] * beams).flatten()
            paths = torch.cat([paths[rows], (index % logits.shape[1]).view(-1, 1)], 1)
            state = state[rows]
        found: list[list[int]] = paths.view(batch, beams, -1)[:, 0, 1:].tolist()
        return found


class PlainLuong(_Plain):
    """OpenNMT's layout: an input-feeding decoder with general attention."""

    def __init__(self, original: Any) -> None:
        super().__init__(original, nn.LSTM)
        decoder = original.decoder
        self.cell = copy_cell(nn.LSTMCell, decoder.cells.cells[0])
        self.query = nn.Linear(self.hidden, 2 * self.hidden, bias=False)
        self.query.weight.data.copy_(decoder.aligner.memory.weight.T)
        self.join = _copy(decoder.join)

    def forward(self, source: Tensor, target: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits of the token after each target token."""
        memory, padding, first = self.encode(source, lengths)
        state, content = first.chunk(2, -1)
        attentional = state.new_zeros(len(source), self.join.out_features)
        outputs = []
        for token in self.embed(target).split(1, dim=1):
            state, content = self.cell(torch.cat([token.squeeze(1), attentional], -1), (state, content))
            scores = torch.bmm(self.query(state)[:, None], memory.transpose(1, 2)).squeeze(1)
            weights = scores.masked_fill(padding, float("-inf")).softmax(-1)
            context = torch.bmm(weights[:, None], memory).squeeze(1)
            attentional = torch.tanh(self.join(torch.cat([context, state], -1)))
            outputs.append(attentional)
        return torch.stack(outputs, 1) @ self.embed.weight.T


def _copy(linear: nn.Linear) -> nn.Linear:
    copy = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    copy.load_state_dict(linear.state_dict())
    return copy


def copy_cell(kind: Any, original: Any) -> Any:
    """Return one of PyTorch's cells with the weights of one of Regard's."""
    weight = torch.cat([original.input_gates.weight, original.context_gates.weight], 1)
    cell = kind(weight.shape[1], original.state.in_features)
    values = {
        "weight_ih": weight,
        "weight_hh": original.state.weight,
        "bias_ih": original.input_gates.bias,
        "bias_hh": original.state.bias,
    }
    cell.load_state_dict(values)
    return cell
