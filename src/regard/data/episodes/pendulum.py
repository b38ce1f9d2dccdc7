"""Pendulum swing-up with a motor too weak to lift it directly, batched over episodes.

    dynamics   angle'' = 15 sin(angle) + 6 torque        angle 0 upright, torque in [-1, 1]; 4 substeps per action
    state      (cos angle, sin angle, speed / 8)
    reward     (1 + cos angle) / 2                       its height: 0 hanging, 1 upright; a return is the sum
    start      within half a radian of hanging, nearly at rest

The pendulum must be swung up by pushing along with the swing. `swing_up_torque` does so up to a given height, and from
height 1 on it balances the pendulum at the top: a family of controllers from poor to expert. Everything is
deterministic but the initial states, which come from the caller's generator.

The mechanics are those of Gym's Pendulum-v1 (m = l = 1, g = 10, torque up to 2), the energy controller is that of
Åström, Furuta: Swinging up a pendulum by energy control. Automatica 2000.
"""

from __future__ import annotations

import math

import torch

from regard.core.shapes import Float, Tensor

GRAVITY, MAX_TORQUE, MAX_SPEED = 15.0, 6.0, 8.0
ACTION_SECONDS, SUBSTEPS = 0.1, 4  # duration and integration steps of an action
STATE_SIZE, ACTION_SIZE = 3, 1
EPISODE_STEPS = 80  # actions per episode


def initial_states(episodes: int, generator: torch.Generator) -> Float[Tensor, "B 2"]:
    """Return angle and speed at the start of episodes."""
    drawn = torch.rand(episodes, 2, generator=generator) - 0.5
    return drawn + torch.tensor([math.pi, 0.0])


def step(place: Float[Tensor, "B 2"], torque: Float[Tensor, " B"]) -> tuple[Float[Tensor, "B 2"], Float[Tensor, " B"]]:
    """Return angle and speed after an action, and its reward."""
    angle, speed = place.unbind(-1)
    push = MAX_TORQUE * torque.clamp(-1, 1)
    for _ in range(SUBSTEPS):
        speed = (speed + ACTION_SECONDS / SUBSTEPS * (GRAVITY * angle.sin() + push)).clamp(-MAX_SPEED, MAX_SPEED)
        angle = angle + ACTION_SECONDS / SUBSTEPS * speed
    return torch.stack([angle, speed], -1), (1 + angle.cos()) / 2


def observe(place: Float[Tensor, "B 2"]) -> Float[Tensor, "B 3"]:
    """Return the observed state of angle and speed."""
    angle, speed = place.unbind(-1)
    return torch.stack([angle.cos(), angle.sin(), speed / MAX_SPEED], -1)


def swing_up_torque(place: Float[Tensor, "B 2"], height: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return the torque of a controller that swings up to a height from 0 to 1, and balances at the top from 1 on."""
    angle, speed = place.unbind(-1)
    energy = speed.square() / 2 + GRAVITY * (angle.cos() - 1)  # 0 upright and at rest, -2 GRAVITY hanging
    missing = 2 * GRAVITY * (height.clamp(max=1) - 1) - energy
    along = torch.where(speed.abs() < 1e-3, torch.ones_like(speed), speed.sign())
    pumped = (missing * along / 2).clamp(-1, 1)
    from_upright = torch.atan2(angle.sin(), angle.cos())  # from upright
    caught = (-(8 * from_upright + 2.2 * speed) * 3 / MAX_TORQUE).clamp(-1, 1)
    near = (height >= 1) & (from_upright.abs() < 0.5) & (speed.abs() < 3)
    return torch.where(near, caught, pumped)
