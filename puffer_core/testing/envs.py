"""The conformance suite for environments: subclass `EnvContract`, name the environment, and pytest collects the rest.

Example::

    class TestMaze(EnvContract):
        env_name = "maze/simple"

An environment that no plugin declares overrides `make`, or sets ``env`` to its class. `puffer check` and
`puffer_core.testing.check` run the same checks without pytest.
"""

from __future__ import annotations

from puffer_core.testing.array_checks import ArrayChecks
from puffer_core.testing.episode_checks import EpisodeChecks
from puffer_core.testing.multi_checks import MultiChecks
from puffer_core.testing.seed_checks import SeedChecks
from puffer_core.testing.single_checks import SingleChecks


class EnvContract(SingleChecks, MultiChecks, ArrayChecks, SeedChecks, EpisodeChecks):
    """What every environment promises: spaces, arrays, seeding, flags, same-step reset, given buffers, closing.

    Rewards and flags are cleared before each step, as a vector does. An environment of another framework is checked
    twice: as it is, so that texts speak of its own calls, and as a `PufferEnv`.
    """
