"""Variance and bias of gradient estimators of hard attention, against the enumeration of all alignments.

    python benchmarks/reinforce.py              -> results/reinforce.json and docs/assets/reinforce.png
    python benchmarks/reinforce.py --updates 0  a fresh model

A small model with hard attention is trained a little on short words of the CMU dictionary. For some words of the
validation part every alignment is then enumerated, with its chance and the pieces of its gradient:

    A(s) = ∂ Σ_t r_t        B_t(s) = ∂ log p(s_t | s_<t)        one draw: A + Σ_t (R_t - b_t) B_t

So the exact gradient, and the exact mean and variance of every estimator of the form above, are sums with no noise in
them; samples are simulated from the same table. Gumbel noise has no such table and is drawn (--draws). "leave_one_out"
reads each word four times and is given for each reading, so that all rows cost alike. Numbers are over all weights of
the model and all words: Σ variance / Σ |exact|², and the distance of the mean of n draws likewise.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import harness

WORDS, LETTERS, SOUNDS = 4, 3, 3  # four positions and four tokens, with the end: 256 alignments
NS = [4**k for k in range(9)]  # draws averaged
GROUP = 4  # samples of `leave_one_out`
RUNS = 40  # simulations of each number of draws


def main() -> None:
    """Train briefly, enumerate, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300, help="of training before the gradients are looked at")
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--draws", type=int, default=8192, help="for Gumbel noise, a word")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="reinforce.json", help="name of the record in results/")
    parser.add_argument("--picture", type=Path, default=harness.HERE.parent / "docs" / "assets" / "reinforce.png")
    args = parser.parse_args()
    import torch

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(args.seed)
    record = {"machine": harness.machine(), "settings": {"updates": args.updates, "seed": args.seed}}
    part, model, mean_reward = trained(args.updates)
    rows, names = short_words(part)[: args.words], []
    sums: dict[str, dict[str, Any]] = {}
    norm, gap = 0.0, 0.0
    for row in rows:
        source, target = pair(part, row)
        names.append(part.entries[row].word)
        table = AlignmentTable(model, source, target)
        norm += float(table.exact.square().sum())
        gap += float(table.likelihood - table.bound)
        for name, found in table.estimators(mean_reward).items():
            add(sums, name, found)
        for temperature in (1.0, 0.3):
            add(sums, f"gumbel, τ {temperature}", gumbel(model, source, target, table.exact, temperature, args.draws))
        print(f"{names[-1]}: {len(table.chances)} alignments", flush=True)
    results = {
        name: {
            "variance": s["variance"] / norm,
            "bias": (s["bias"] / norm) ** 0.5,
            "errors": [[n, (error / norm) ** 0.5] for n, error in s["errors"].items()],
        }
        for name, s in sums.items()
    }
    record |= {"words": names, "mean_reward_per_token": mean_reward, "elbo_gap_per_word": gap / len(rows)}
    record["estimators"] = results
    harness.write(args.output, record)
    draw_figure(results, args.updates, args.picture)
    for name, found in results.items():
        print(f"{name:<26} variance {found['variance']:10.3g}   bias {found['bias']:.2e}")


def add(sums: dict[str, dict[str, Any]], name: str, found: dict[str, Any]) -> None:
    """Add sums of squares of a word."""
    old = sums.setdefault(name, {"variance": 0.0, "bias": 0.0, "errors": {}})
    old["variance"] += found["variance"]
    old["bias"] += found["bias"]
    for n, error in found["errors"].items():
        old["errors"][n] = old["errors"].get(n, 0.0) + error


# -- data and model ----------------------------------------------------------------------------------------------------


def short_words(part: Any) -> list[int]:
    """Return the rows with LETTERS letters and SOUNDS phonemes."""
    fits = (part.source.lengths == LETTERS + 1) & (part.target.lengths == SOUNDS + 2)
    found: list[int] = fits.nonzero()[:, 0].tolist()
    return found


def pair(part: Any, row: int) -> tuple[Any, Any]:
    """Return the token ids of one word and its phonemes."""
    import torch

    batch = part.collate(torch.tensor([row]))
    return batch.source[0, : LETTERS + 1], batch.target[0, : SOUNDS + 2]


def trained(updates: int) -> tuple[Any, Any, float]:
    """Return the validation split, a model trained on short words, and its moving mean reward per token."""
    import torch

    from regard.attention.aligners.hard import collect_choices
    from regard.core.layer_state import PassState
    from regard.data.text.cmudict import CMUDict
    from regard.losses.reinforce_baselines import MovingAverageBaseline
    from regard.models.rnnsearch import Config, RNNSearch
    from regard.tasks.reinforce import PolicyGradientLoss, Reinforce, token_log_probs
    from regard.tasks.text.translation import shift_targets

    data = CMUDict("cmudict")
    part = data.load("train")
    text, rows = part.tokenizer, torch.tensor(short_words(part))
    marks = {"pad": text.pad, "bos": text.bos, "eos": text.eos}
    model = RNNSearch(Config(text.size, width=12, hidden=12, align_width=8, readout=None, aligner="hard", **marks))
    choices, moving = (
        PolicyGradientLoss(Reinforce(entropy=0.02, baseline="leave_one_out", num_samples=GROUP)),
        MovingAverageBaseline(decay=0.95),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(max(updates, 20)):  # with 0 updates, rewards are only observed
        batch = part.collate(rows[torch.randint(len(rows), (32,))])
        batch = type(batch)(*(x.repeat_interleave(GROUP, 0) for x in batch))
        targets = shift_targets(batch)
        pass_state = PassState()
        logits = model.train()(batch.source, batch.target[:, :-1], batch.source_lengths, pass_state=pass_state)
        rewards, valid = token_log_probs(logits, targets), targets >= 0
        loss = choices.loss(*collect_choices(pass_state)[:2], rewards, valid, step) - rewards.sum()
        moving.observe(rewards.detach().sum(), valid.sum())
        moving.update()
        if step < updates:
            optimizer.zero_grad()
            (loss / valid.sum()).backward()
            optimizer.step()
    return data.load("val", text), model, float(moving.mean_reward())


# -- the table of all alignments ---------------------------------------------------------------------------------------


class AlignmentTable:
    """All alignments of one word, with the terms of their gradients."""

    def __init__(self, model: Any, source: Any, target: Any) -> None:
        import torch

        from regard.attention.aligners.hard import collect_choices
        from regard.core.layer_state import PassState
        from regard.tasks.exact_alignments import enumerate_alignments

        alignments = enumerate_alignments(model, source, target)
        self.exact = flat_gradient(alignments.bound, model)
        self.bound, self.likelihood = alignments.bound.detach(), alignments.likelihood.detach()
        self.chances, self.rewards = alignments.chances.detach(), alignments.rewards.detach()
        direct, choice = [], []
        aligner = model.decoder.aligner
        model.eval()
        aligner.training = True
        for path in alignments.paths:  # one row at a time, for the gradients of this row alone
            with aligner.force_path(path[None]):
                pass_state = PassState()
                logits = model(source[None], target[None, :-1], pass_state=pass_state)
                log_s = collect_choices(pass_state).log_probs[0]
            log_likelihood = logits[0].log_softmax(-1).gather(1, target[1:, None]).sum()
            direct.append(flat_gradient(log_likelihood, model, retain_graph=True))
            choice.append(torch.stack([flat_gradient(log_prob, model, retain_graph=True) for log_prob in log_s]))
        aligner.training = False
        self.direct, self.choice = torch.stack(direct), torch.stack(choice)  # P W, P T W

    def estimators(self, mean_reward: float) -> dict[str, dict[str, Any]]:
        """Return variance, bias and errors of every estimator."""
        import torch

        from regard.tasks.reinforce import reward_to_go, total_reward

        ones = torch.ones_like(self.rewards)
        found = {}
        for credit in (total_reward, reward_to_go):
            for name, per_token in (("no baseline", 0.0), ("moving average", mean_reward)):
                advantage = credit(self.rewards) - per_token * credit(ones)
                credit_name = "full return" if credit is total_reward else "reward to go"
                found[f"{credit_name}, {name}"] = self.statistics(
                    self.direct + (advantage[..., None] * self.choice).sum(1)
                )
        found[f"reward to go, leave-one-out, {GROUP}"] = self.leave_one_out()
        return found

    def statistics(self, gradients: Any) -> dict[str, Any]:
        """Return the statistics of an estimator whose sample is one of these rows."""
        import torch

        mean = self.chances @ gradients
        variance = float(self.chances @ (gradients - mean).square().sum(1))
        errors = {}
        for n in NS:
            counts = torch.distributions.Multinomial(n, probs=self.chances).sample((RUNS,))
            errors[n] = float(((counts / n) @ gradients - self.exact).square().sum(1).mean())
        return {"variance": variance, "bias": float((mean - self.exact).square().sum()), "errors": errors}

    def leave_one_out(self, groups: int = 4096) -> dict[str, Any]:
        """Return the statistics of leave-one-out groups, per sample."""
        import torch

        from regard.tasks.reinforce import reward_to_go

        all_returns = reward_to_go(self.rewards)
        total, squares, errors, num_groups = torch.zeros_like(self.exact), 0.0, {}, 0
        while num_groups < groups:
            samples = torch.multinomial(self.chances, 1024 * GROUP, replacement=True).view(-1, GROUP)
            returns = all_returns[samples]  # D G T
            rest = (returns.sum(1, keepdim=True) - returns) / (GROUP - 1)
            pieces = torch.zeros(len(samples), len(self.chances), all_returns.shape[1])
            for g in range(GROUP):  # weights of the rows of the table, summed over the group
                pieces.scatter_add_(
                    1, samples[:, g, None, None].expand(-1, 1, all_returns.shape[1]), (returns - rest)[:, g, None]
                )
            counts = torch.zeros(len(samples), len(self.chances)).scatter_add_(
                1, samples, torch.ones_like(samples, dtype=all_returns.dtype)
            )
            gradients = (counts @ self.direct + pieces.flatten(1) @ self.choice.flatten(0, 1)) / GROUP
            if not num_groups:
                first = gradients
            total, squares, num_groups = (
                total + gradients.sum(0),
                squares + float(gradients.square().sum()),
                num_groups + len(samples),
            )
        mean = total / num_groups
        variance = squares / num_groups - float(mean.square().sum())
        for n in NS[1:]:
            size = n // GROUP
            if size <= len(first) // 4:
                means = first[: len(first) // size * size].unflatten(0, (-1, size)).mean(1)
                errors[n] = float((means - self.exact).square().sum(1).mean())
        errors[num_groups * GROUP] = float((mean - self.exact).square().sum())
        # the remaining distance is noise; a test shows by enumeration that the bias is zero
        noise = variance / num_groups
        return {
            "variance": variance * GROUP,
            "bias": max(0.0, float((mean - self.exact).square().sum()) - noise),
            "errors": errors,
        }


def gumbel(model: Any, source: Any, target: Any, exact: Any, temperature: float, draws: int) -> dict[str, Any]:
    """Return the statistics of straight-through Gumbel sampling with the same weights."""
    import copy

    import torch

    from regard.attention.aligners.gumbel import GumbelAligner

    gumbel_model, size = copy.deepcopy(model), 64
    old = gumbel_model.decoder.aligner
    widths = old.base.query.in_features, old.base.memory.in_features, old.base.query.out_features
    gumbel_model.decoder.aligner = GumbelAligner(*widths, temperature=temperature)
    gumbel_model.decoder.aligner.base.load_state_dict(old.base.state_dict())
    gumbel_model.eval()
    gumbel_model.decoder.aligner.training = True
    means = []
    for _ in range(draws // size):
        logits = gumbel_model(source.expand(size, -1), target[:-1].expand(size, -1))
        log_likelihood = logits.log_softmax(-1).gather(2, target[1:].expand(size, -1)[..., None]).sum()
        means.append(flat_gradient(log_likelihood / size, gumbel_model))
    gradients = torch.stack(means)
    mean = gradients.mean(0)
    variance = float((gradients - mean).square().sum(1).sum() / (len(gradients) - 1)) * size
    errors = {}
    for n in NS:
        if n >= size and n // size <= len(gradients):
            errors[n] = float((gradients.unflatten(0, (-1, n // size)).mean(1) - exact).square().sum(1).mean())
    bias = float((mean - exact).square().sum()) - variance / draws  # without the noise
    return {"variance": variance, "bias": max(bias, 0.0), "errors": errors}


def flat_gradient(value: Any, model: Any, retain_graph: bool = False) -> Any:
    """Return the gradient of all weights as one vector."""
    import torch

    parameters = list(model.parameters())
    found = torch.autograd.grad(value, parameters, allow_unused=True, retain_graph=retain_graph)
    pieces = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
    return torch.cat([piece.flatten() for piece in pieces])


def draw_figure(results: dict[str, Any], updates: int, path: Path) -> None:
    """Draw both panels."""
    from regard.see import gradient_estimators

    variances = {name: found["variance"] for name, found in results.items()}
    errors = {name: [(n, error) for n, error in found["errors"]] for name, found in results.items()}
    gradient_estimators(
        variances, errors, path, f"the gradient of hard attention after {updates} updates, against enumeration"
    )


if __name__ == "__main__":
    sys.exit(main())
