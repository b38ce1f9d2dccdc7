"""A pendulum to swing up, whose motor is too weak to lift it at once: a world to act in, many episodes at a time.

    world      angle'' = 15 sin(angle) + 6 torque        angle 0 upright, torque in [-1, 1]; 4 small steps an action
    state      (cos angle, sin angle, speed / 8)
    reward     (1 + cos angle) / 2                       its height: 0 hanging, 1 upright; a return is the sum
    begin      within half a radian of hanging, nearly at rest

The way up is to push along with the swing until the energy suffices. `swing_up_torque` does so up to a wanted height, and to the
top it catches the pendulum there: a family of controllers from lazy to expert, to learn from. Everything is a formula
of tensors: no randomness but in where an episode begins, which the caller's generator says.

The mechanics are those of Gym's Pendulum-v1 (m = l = 1, g = 10, torque up to 2), the energy controller is that of
Åström, Furuta: Swinging up a pendulum by energy control. Automatica 2000.
"""

from __future__ import annotations

import math

import torch

from regard.core.shapes import Float, Tensor

GRAVITY, MAX_TORQUE, MAX_SPEED = 15.0, 6.0, 8.0
ACTION_SECONDS, SUBSTEPS = 0.1, 4  # of an action, and the small steps it is computed in
STATE_SIZE, ACTION_SIZE = 3, 1
EPISODE_STEPS = 80  # of an episode


def initial_states(episodes: int, generator: torch.Generator) -> Float[Tensor, "B 2"]:
    """Angle and speed at the beginning of so many episodes."""
    drawn = torch.rand(episodes, 2, generator=generator) - 0.5
    return drawn + torch.tensor([math.pi, 0.0])


def step(place: Float[Tensor, "B 2"], torque: Float[Tensor, " B"]) -> tuple[Float[Tensor, "B 2"], Float[Tensor, " B"]]:
    """Where the pendulum is after an action, and the reward of it."""
    angle, speed = place.unbind(-1)
    push = MAX_TORQUE * torque.clamp(-1, 1)
    for _ in range(SUBSTEPS):
        speed = (speed + ACTION_SECONDS / SUBSTEPS * (GRAVITY * angle.sin() + push)).clamp(-MAX_SPEED, MAX_SPEED)
        angle = angle + ACTION_SECONDS / SUBSTEPS * speed
    return torch.stack([angle, speed], -1), (1 + angle.cos()) / 2


def observe(place: Float[Tensor, "B 2"]) -> Float[Tensor, "B 3"]:
    """The state as it is observed."""
    angle, speed = place.unbind(-1)
    return torch.stack([angle.cos(), angle.sin(), speed / MAX_SPEED], -1)


def swing_up_torque(place: Float[Tensor, "B 2"], height: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """The torque of a controller that swings up to a height from 0 to 1, and from 1 on stays at the top."""
    angle, speed = place.unbind(-1)
    energy = speed.square() / 2 + GRAVITY * (angle.cos() - 1)  # 0 upright and at rest, -2 PULL hanging
    missing = 2 * GRAVITY * (height.clamp(max=1) - 1) - energy
    along = torch.where(speed.abs() < 1e-3, torch.ones_like(speed), speed.sign())
    pumped = (missing * along / 2).clamp(-1, 1)
    off = torch.atan2(angle.sin(), angle.cos())  # from upright
    caught = (-(8 * off + 2.2 * speed) * 3 / MAX_TORQUE).clamp(-1, 1)
    near = (height >= 1) & (off.abs() < 0.5) & (speed.abs() < 3)
    return torch.where(near, caught, pumped)
