// continuous: steer a point by its acceleration to a target in the square [-1, 1] x [-1, 1] without leaving it.
// Reaching the target wins, leaving the square fails, after max_steps the episode is cut. One step has no unit of time:
// the velocity grows by accel x action, then the position by the velocity.
// Source: PufferLib 3's continuous.
//
// Observation, float32 (6,): 0 x, 1 y, 2 velocity in x, 3 in y, 4 target x, 5 target y; y grows downwards.
// Action, Box(2): acceleration in x and y; discretize = 1: Discrete(4): 0 left, 1 right, 2 up, 3 down, each in full.
#ifndef PUFFER_OCEAN_CONTINUOUS_H
#define PUFFER_OCEAN_CONTINUOUS_H

#include <puffer/draw.h>
#include <puffer/vec.h>

#define CONTINUOUS_FAIL_REWARD -1.0f
#define CONTINUOUS_NEAR_REWARD 0.02f  // per step, times 1 - distance to the target

enum {
    CONTINUOUS_DISCRETIZE,
    CONTINUOUS_MAX_STEPS,
    CONTINUOUS_ACCEL,
    CONTINUOUS_RADIUS,
    CONTINUOUS_SUCCESS_REWARD,
    CONTINUOUS_NUM_PARAMS
};

static const PufferParam continuous_params[] = {
    PUFFER_P_BOOL("discretize", 0, 0, "Choose among left, right, up and down instead of two accelerations."),
    PUFFER_P_INT("max_steps", 100, 1, 10000, 1, 0, "Steps after which an episode is truncated."),
    PUFFER_P_FLOAT("accel", 0.1, 0.001, 1, 0, "Largest change of the velocity per step and axis."),
    PUFFER_P_FLOAT("radius", 0.1, 0.01, 1, 0, "Distance to the target below which it is reached."),
    PUFFER_P_FLOAT("success_reward", 5, 0, 100, 0, "Reward for reaching the target."),
};

enum {
    CONTINUOUS_LOG_SCORE,
    CONTINUOUS_LOG_PERF,
    CONTINUOUS_LOG_RETURN,
    CONTINUOUS_LOG_LENGTH,
    CONTINUOUS_LOG_ILLEGAL,
    CONTINUOUS_LOG_OUT,
    CONTINUOUS_NUM_LOG
};

static const char *const continuous_log[] = {"score",           "perf",         "episode_return", "episode_length",
                                             "illegal_actions", "out_of_bounds"};

typedef struct Continuous {  // two cache lines
    PufferHead head;
    float x, y, vx, vy, target_x, target_y;
    float total;  // rewards of the episode so far
    int32_t steps, illegal;
    int32_t max_steps;
    float accel, radius2, success_reward;
    uint8_t discretize;
} Continuous;

static void continuous_spaces(const PufferValue *p, PufferSpaces *spaces) {
    // Inside the square a velocity is a difference of two positions; the step that leaves it adds one acceleration.
    const double limit = 3.0 + p[CONTINUOUS_ACCEL].f;
    spaces->obs_dtype = PUFFER_F32;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = 6;
    spaces->obs_low = -limit;
    spaces->obs_high = limit;
    spaces->action_kind = p[CONTINUOUS_DISCRETIZE].i ? PUFFER_DISCRETE : PUFFER_BOX;
    spaces->num_heads = p[CONTINUOUS_DISCRETIZE].i ? 1 : 2;
    spaces->head_size[0] = 4;
    spaces->agents = 1;
}

static size_t continuous_state_size(const PufferValue *p) {
    (void)p;
    return sizeof(Continuous);
}

static void continuous_init(void *state, const PufferValue *p, const void *shared) {
    Continuous *env = state;
    (void)shared;
    env->discretize = p[CONTINUOUS_DISCRETIZE].i != 0;
    env->max_steps = (int32_t)p[CONTINUOUS_MAX_STEPS].i;
    env->accel = (float)p[CONTINUOUS_ACCEL].f;
    env->radius2 = (float)(p[CONTINUOUS_RADIUS].f * p[CONTINUOUS_RADIUS].f);
    env->success_reward = (float)p[CONTINUOUS_SUCCESS_REWARD].f;
}

static void continuous_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    (void)agent;
    (void)mask_row;
    memcpy(obs_row, &((const Continuous *)state)->x, 6 * sizeof(float));
}

static inline float *continuous_obs(const Continuous *env) { return puffer_obs(&env->head, 0, 6 * sizeof(float)); }

static void continuous_reset(void *state) {
    Continuous *env = state;
    PufferRng *rng = &env->head.rng;
    env->x = puffer_rng_range(rng, -1.0f, 1.0f);
    env->y = puffer_rng_range(rng, -1.0f, 1.0f);
    env->target_x = puffer_rng_range(rng, -1.0f, 1.0f);
    env->target_y = puffer_rng_range(rng, -1.0f, 1.0f);
    env->vx = env->vy = env->total = 0.0f;
    env->steps = env->illegal = 0;
    env->head.fresh = 0;
    continuous_observe(env, 0, continuous_obs(env), NULL);
}

static inline void continuous_accelerate(Continuous *env) {
    if (env->discretize) {
        const int action = puffer_discrete(&env->head, 0, 0, 1, 4, 0, &env->illegal);
        const float change = (float)(2 * (action & 1) - 1) * env->accel;  // no branch to miss
        const float downwards = (float)(action >> 1);
        env->vx += (1.0f - downwards) * change;
        env->vy += downwards * change;
    } else {
        env->vx += env->accel * puffer_box(&env->head, 0, 0, 2, &env->illegal);
        env->vy += env->accel * puffer_box(&env->head, 0, 1, 2, &env->illegal);
    }
}

static void continuous_finish(Continuous *env, int out, int reached) {
    const float reward = out ? CONTINUOUS_FAIL_REWARD : reached ? env->success_reward : 0.0f;
    *puffer_reward(&env->head, 0) = reward;
    puffer_end(&env->head, 0, out || reached, 6 * sizeof(float));
    float *log = puffer_log(&env->head, 0, CONTINUOUS_NUM_LOG);
    log[CONTINUOUS_LOG_SCORE] = log[CONTINUOUS_LOG_PERF] = (float)reached;
    log[CONTINUOUS_LOG_RETURN] = env->total + reward;
    log[CONTINUOUS_LOG_LENGTH] = (float)env->steps;
    log[CONTINUOUS_LOG_ILLEGAL] = (float)env->illegal;
    log[CONTINUOUS_LOG_OUT] = (float)out;
    continuous_reset(env);
}

static inline void continuous_step(Continuous *env) {
    float *obs = continuous_obs(env);
    continuous_accelerate(env);
    obs[0] = env->x += env->vx;
    obs[1] = env->y += env->vy;
    obs[2] = env->vx;
    obs[3] = env->vy;
    env->steps++;
    const float dx = env->target_x - env->x, dy = env->target_y - env->y, distance2 = dx * dx + dy * dy;
    const int out = (fabsf(env->x) > 1.0f) | (fabsf(env->y) > 1.0f), reached = !out & (distance2 < env->radius2);
    if (out | reached | (env->steps >= env->max_steps)) {
        continuous_finish(env, out, reached);
        return;
    }
    const float reward = CONTINUOUS_NEAR_REWARD * (1.0f - sqrtf(distance2));
    env->total += reward;
    *puffer_reward(&env->head, 0) = reward;
}

static void continuous_draw(const void *state, PufferCanvas *canvas) {
    enum { SIDE = 512 };
    const Continuous *env = state;
    const float half = SIDE / 2.0f, x = half + half * env->x, y = half + half * env->y;
    if (!puffer_canvas(canvas, SIDE, SIDE, 15)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    puffer_disc(canvas, half + half * env->target_x, half + half * env->target_y, half * sqrtf(env->radius2),
                PUFFER_RED);
    puffer_disc(canvas, x, y, 10.0f, PUFFER_CYAN);
    puffer_line(canvas, x, y, x + half * env->vx, y + half * env->vy, 3.0f, PUFFER_WHITE);
}

// The square in cells: A the agent, X the target.
static int continuous_text(const void *state, char *buf, size_t len) {
    enum { CELLS = 21 };
    const Continuous *env = state;
    const int x = (int)((env->x + 1.0f) * 0.5f * (CELLS - 1) + 0.5f),
              y = (int)((env->y + 1.0f) * 0.5f * (CELLS - 1) + 0.5f);
    const int tx = (int)((env->target_x + 1.0f) * 0.5f * (CELLS - 1) + 0.5f);
    const int ty = (int)((env->target_y + 1.0f) * 0.5f * (CELLS - 1) + 0.5f);
    int size = 0;
    for (int row = 0; row < CELLS; row++) {
        char line[CELLS + 1];
        memset(line, '.', CELLS);
        line[CELLS] = '\0';
        if (row == ty) line[tx] = 'X';
        if (row == y) line[x] = 'A';
        const size_t used = (size_t)size < len ? (size_t)size : len;
        size += snprintf(buf + used, len - used, "%s\n", line);
    }
    return size;
}

static int continuous_human(const void *state, const PufferKeys *keys, void *action) {
    const Continuous *env = state;
    const int left = keys->down[PUFFER_KEY_LEFT] || keys->down['a'];
    const int right = keys->down[PUFFER_KEY_RIGHT] || keys->down['d'];
    const int up = keys->down[PUFFER_KEY_UP] || keys->down['w'];
    const int down = keys->down[PUFFER_KEY_DOWN] || keys->down['s'];
    if (env->discretize) {
        *(int32_t *)action = left ? 0 : right ? 1 : up ? 2 : down ? 3 : 0;
    } else {
        ((float *)action)[0] = (float)(right - left);
        ((float *)action)[1] = (float)(down - up);
    }
    return left || right || up || down;
}

PUFFER_ENV(continuous, Continuous, .version = 1, .params = continuous_params, .num_params = CONTINUOUS_NUM_PARAMS,
           .log_fields = continuous_log, .num_log_fields = CONTINUOUS_NUM_LOG, .spaces = continuous_spaces,
           .state_size = continuous_state_size, .init = continuous_init, .reset = continuous_reset,
           .observe = continuous_observe, .draw = continuous_draw, .text = continuous_text, .human = continuous_human);

#endif
