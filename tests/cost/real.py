"""The same update with real tensors: what torch's own counters say of it."""

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import meta_model
from regard.cost.passes import _optimiser
from regard.training.parallel.parallelize import enable_gradient_checkpointing


class Real:
    """A model that is there, and one update of it."""

    def __init__(self, config, shape, way, device="cpu"):
        torch.manual_seed(0)
        self.model, self.shape, self.way = meta_model.build(config).train().to(device), shape, way
        self.device = torch.device(device)
        if way.recompute:
            enable_gradient_checkpointing(self.model)
        self.optimiser = _optimiser(self.model, way.optimiser)

    def loss(self):
        batch = {name: x.to(self.device) for name, x in meta_model.make_batch(self.model, self.shape).items()}
        with torch.autocast(self.device.type, torch.bfloat16, self.way.precision == "bfloat16"):
            return meta_model.training_loss(self.model, batch, is_cpu=self.device.type == "cpu")

    def update(self):
        for _ in range(self.way.accumulate):
            (self.loss() / 2).backward()
        self.optimiser.step(1e-3)

    def operations(self, backward=True):
        """As torch counts them."""
        with FlopCounterMode(display=False) as counter:
            total = self.loss()
            if backward:
                total.backward()
        self.model.zero_grad(set_to_none=True)
        return counter.get_total_flops()

    def peak(self):
        """Bytes that an update allocates on the host at most, by the allocator's own record."""
        self.update()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            self.update()
        events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return most
