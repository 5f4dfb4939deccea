// The environments of this plugin: one row each, in the order of the documentation. Everything else an environment has
// to say stands in its own header, envs/<name>.h, which ends with its PUFFER_ENV(<name>, ...).
#ifndef PUFFER_OCEAN_ENV_TABLE_H
#define PUFFER_OCEAN_ENV_TABLE_H

// clang-format off
#define PUFFER_ENVS(X) \
    X(memory) \
    X(squared) \
    X(continuous) \
    X(breakout) \
    X(snake) \
    X(connect4) \
    X(cartpole) \
    X(target)

// clang-format on

#endif
