"""One update with real tensors, measured by torch's own counters."""

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import meta_model
from regard.cost.passes import build_optimizer
from regard.training.parallel.parallelize import enable_gradient_checkpointing


class Real:
    """A model on real tensors, and one update of it."""

    def __init__(self, config, shape, plan, device="cpu"):
        torch.manual_seed(0)
        self.model, self.shape, self.plan = meta_model.build(config).train().to(device), shape, plan
        self.device = torch.device(device)
        if plan.recompute:
            enable_gradient_checkpointing(self.model)
        self.optimizer = build_optimizer(self.model, plan.optimizer)

    def loss(self):
        batch = {name: x.to(self.device) for name, x in meta_model.make_batch(self.model, self.shape).items()}
        with torch.autocast(self.device.type, torch.bfloat16, self.plan.precision == "bfloat16"):
            return meta_model.training_loss(self.model, batch, is_cpu=self.device.type == "cpu")

    def update(self):
        for _ in range(self.plan.accumulate):
            (self.loss() / 2).backward()
        self.optimizer.step(1e-3)

    def operations(self, backward=True):
        """Return the operations that torch counts."""
        with FlopCounterMode(display=False) as counter:
            total = self.loss()
            if backward:
                total.backward()
        self.model.zero_grad(set_to_none=True)
        return counter.get_total_flops()

    def peak(self):
        """Return the most bytes that an update allocates on the host, by the profiler's record."""
        self.update()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            self.update()
        events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
        current = peak = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            current += event.nbytes()
            peak = max(peak, current)
        return peak
