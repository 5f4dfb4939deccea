// cartpole: push a cart left or right so that the pole on it stays up and the cart on its track. Frictionless, explicit
// Euler, positions first; one step is dt, 0.02 s. Falling or leaving ends the episode, surviving max_steps cuts it.
// Source: PufferLib's cartpole; Barto, Sutton and Anderson 1983 as corrected by Florian 2007, and as in Gymnasium.
//
// Observation, float32 (4,), unscaled or (scaled = 1) each divided by the number in brackets:
//   0 cart position, m [2.4]   1 cart velocity, m/s [3]   2 pole angle from upright, rad [0.2094]   3 its rate, rad/s
//   [3]
// Action, Discrete(2): 0 push left, 1 push right; continuous = 1: Box(1), the share of the force to the right.
#ifndef PUFFER_OCEAN_CARTPOLE_H
#define PUFFER_OCEAN_CARTPOLE_H

#include <puffer/draw.h>
#include <puffer/vec.h>

#define CARTPOLE_MAX_X 2.4f             // m
#define CARTPOLE_MAX_ANGLE 0.20943951f  // rad, 12 degrees
#define CARTPOLE_TYPICAL_RATE 3.0f      // m/s and rad/s, of a scaled observation

enum {
    CARTPOLE_CART_MASS,
    CARTPOLE_POLE_MASS,
    CARTPOLE_POLE_LENGTH,
    CARTPOLE_GRAVITY,
    CARTPOLE_FORCE_MAG,
    CARTPOLE_DT,
    CARTPOLE_MAX_STEPS,
    CARTPOLE_CONTINUOUS,
    CARTPOLE_GYM_REWARD,
    CARTPOLE_RESET_RANGE,
    CARTPOLE_SCALED,
    CARTPOLE_STAGGER,
    CARTPOLE_NUM_PARAMS
};

static const PufferParam cartpole_params[] = {
    PUFFER_P_FLOAT("cart_mass", 1, 0.001, 100, 0, "Mass of the cart in kg."),
    PUFFER_P_FLOAT("pole_mass", 0.1, 0.001, 100, 0, "Mass of the pole in kg."),
    PUFFER_P_FLOAT("pole_length", 0.5, 0.001, 100, 0, "Half the length of the pole in m."),
    PUFFER_P_FLOAT("gravity", 9.8, 0.001, 100, 0, "Gravity in m/s^2."),
    PUFFER_P_FLOAT("force_mag", 10, 0.001, 100, 0, "Force of a push in N."),
    PUFFER_P_FLOAT("dt", 0.02, 0.001, 0.1, 0, "Length of a step in s."),
    PUFFER_P_INT("max_steps", 200, 1, 1000000, 1, 0, "Steps after which an episode is truncated."),
    PUFFER_P_BOOL("continuous", 0, 0, "Choose the force from [-1, 1] x force_mag instead of left or right."),
    PUFFER_P_BOOL("gym_reward", 0, 0, "Pay 1 on the last step of an episode too, as Gymnasium does."),
    PUFFER_P_FLOAT("reset_range", 0.04, 0, 0.2, 0, "Largest absolute value of each number of a first state."),
    PUFFER_P_BOOL("scaled", 0, 0, "Scale observations to about 1, which is easier to learn from."),
    PUFFER_P_BOOL("stagger", 0, 0, "Cut the first episode of each instance at a random step."),
};

enum {
    CARTPOLE_LOG_SCORE,
    CARTPOLE_LOG_PERF,
    CARTPOLE_LOG_RETURN,
    CARTPOLE_LOG_LENGTH,
    CARTPOLE_LOG_ILLEGAL,
    CARTPOLE_LOG_X_OUT,
    CARTPOLE_LOG_ANGLE_OUT,
    CARTPOLE_LOG_TIMED_OUT,
    CARTPOLE_NUM_LOG
};

static const char *const cartpole_log[] = {"score",           "perf",  "episode_return", "episode_length",
                                           "illegal_actions", "x_out", "angle_out",      "timed_out"};

typedef struct Cartpole {  // two cache lines
    PufferHead head;
    float x, x_dot, angle, angle_dot;
    int32_t steps, limit;  // so far; the episode is cut when steps reaches limit
    int32_t illegal;
    float push;        // force_mag / total mass, m/s^2
    float pole_share;  // pole_mass x pole_length / total mass, m
    float gravity, dt;
    float inertia;  // 4/3 of the pole's half length, m
    float x_scale, angle_scale, rate_scale, reset_range;
    int32_t max_steps;
    float pole_length;
    uint8_t continuous, gym_reward, stagger;
    uint8_t cut;  // this is a first episode with a limit of its own: not logged
} Cartpole;

static void cartpole_spaces(const PufferValue *p, PufferSpaces *spaces) {
    spaces->obs_dtype = PUFFER_F32;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = 4;
    spaces->obs_low = -(double)INFINITY;
    spaces->obs_high = (double)INFINITY;
    spaces->action_kind = p[CARTPOLE_CONTINUOUS].i ? PUFFER_BOX : PUFFER_DISCRETE;
    spaces->num_heads = 1;
    spaces->head_size[0] = 2;
    spaces->agents = 1;
}

static size_t cartpole_state_size(const PufferValue *p) {
    (void)p;
    return sizeof(Cartpole);
}

static void cartpole_init(void *state, const PufferValue *p, const void *shared) {
    Cartpole *env = state;
    const double mass = p[CARTPOLE_CART_MASS].f + p[CARTPOLE_POLE_MASS].f;
    const double length = p[CARTPOLE_POLE_LENGTH].f;
    const int scaled = p[CARTPOLE_SCALED].i != 0;
    (void)shared;
    env->push = (float)(p[CARTPOLE_FORCE_MAG].f / mass);
    env->pole_share = (float)(p[CARTPOLE_POLE_MASS].f * length / mass);
    env->gravity = (float)p[CARTPOLE_GRAVITY].f;
    env->dt = (float)p[CARTPOLE_DT].f;
    env->inertia = (float)(length * 4.0 / 3.0);
    env->x_scale = scaled ? 1.0f / CARTPOLE_MAX_X : 1.0f;
    env->angle_scale = scaled ? 1.0f / CARTPOLE_MAX_ANGLE : 1.0f;
    env->rate_scale = scaled ? 1.0f / CARTPOLE_TYPICAL_RATE : 1.0f;
    env->reset_range = (float)p[CARTPOLE_RESET_RANGE].f;
    env->max_steps = (int32_t)p[CARTPOLE_MAX_STEPS].i;
    env->pole_length = (float)length;
    env->continuous = p[CARTPOLE_CONTINUOUS].i != 0;
    env->gym_reward = p[CARTPOLE_GYM_REWARD].i != 0;
    env->stagger = p[CARTPOLE_STAGGER].i != 0;
}

static inline void cartpole_observe_row(const Cartpole *env, float *obs) {
    obs[0] = env->x * env->x_scale;
    obs[1] = env->x_dot * env->rate_scale;
    obs[2] = env->angle * env->angle_scale;
    obs[3] = env->angle_dot * env->rate_scale;
}

static void cartpole_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    (void)agent;
    (void)mask_row;
    cartpole_observe_row(state, obs_row);
}

static inline float *cartpole_obs(const Cartpole *env) { return puffer_obs(&env->head, 0, 4 * sizeof(float)); }

static void cartpole_reset(void *state) {
    Cartpole *env = state;
    PufferRng *rng = &env->head.rng;
    const float range = env->reset_range;
    env->x = puffer_rng_range(rng, -range, range);
    env->x_dot = puffer_rng_range(rng, -range, range);
    env->angle = puffer_rng_range(rng, -range, range);
    env->angle_dot = puffer_rng_range(rng, -range, range);
    env->steps = env->illegal = 0;
    env->limit = env->max_steps;
    env->cut = 0;
    if (env->stagger && env->head.fresh) {
        env->limit = 1 + (int32_t)puffer_rng_below(rng, (uint32_t)env->max_steps);
        env->cut = 1;
    }
    env->head.fresh = 0;
    cartpole_observe_row(env, cartpole_obs(env));
}

// The acceleration that the action asks for if the pole were not there, m/s^2.
static inline float cartpole_push(Cartpole *env) {
    if (env->continuous) return puffer_box(&env->head, 0, 0, 1, &env->illegal) * env->push;
    return (float)(2 * puffer_discrete(&env->head, 0, 0, 1, 2, 0, &env->illegal) - 1) * env->push;  // no branch to miss
}

// Florian 2007, equations 23 and 24 without friction. The series are exact to float32, because no episode goes on with
// an angle beyond 12 degrees; alpha's divisor is at least a third of the pole's half length.
static inline void cartpole_advance(Cartpole *env, float push) {
    const float q = env->angle * env->angle;
    const float sine = env->angle * (1.0f - q * (1.0f / 6.0f - q * (1.0f / 120.0f - q * (1.0f / 5040.0f))));
    const float cosine = 1.0f - q * (0.5f - q * (1.0f / 24.0f - q * (1.0f / 720.0f)));
    const float accel = push + env->pole_share * env->angle_dot * env->angle_dot * sine;
    const float alpha = (env->gravity * sine - cosine * accel) / (env->inertia - env->pole_share * cosine * cosine);
    env->x += env->dt * env->x_dot;
    env->angle += env->dt * env->angle_dot;
    env->x_dot += env->dt * (accel - env->pole_share * alpha * cosine);
    env->angle_dot += env->dt * alpha;
}

static void cartpole_finish(Cartpole *env, int x_out, int angle_out) {
    const int terminal = x_out || angle_out;
    const float total = (float)(env->steps - !env->gym_reward);
    *puffer_reward(&env->head, 0) = env->gym_reward;
    puffer_end(&env->head, 0, terminal, 4 * sizeof(float));
    if (!env->cut) {
        float *log = puffer_log(&env->head, 0, CARTPOLE_NUM_LOG);
        log[CARTPOLE_LOG_SCORE] = log[CARTPOLE_LOG_LENGTH] = (float)env->steps;
        log[CARTPOLE_LOG_PERF] = total / (float)env->max_steps;
        log[CARTPOLE_LOG_RETURN] = total;
        log[CARTPOLE_LOG_ILLEGAL] = (float)env->illegal;
        log[CARTPOLE_LOG_X_OUT] = (float)x_out;
        log[CARTPOLE_LOG_ANGLE_OUT] = (float)(angle_out && !x_out);
        log[CARTPOLE_LOG_TIMED_OUT] = (float)!terminal;
    }
    cartpole_reset(env);
}

static inline void cartpole_step(Cartpole *env) {
    cartpole_advance(env, cartpole_push(env));
    cartpole_observe_row(env, cartpole_obs(env));
    const int x_out = fabsf(env->x) > CARTPOLE_MAX_X, angle_out = fabsf(env->angle) > CARTPOLE_MAX_ANGLE;
    if ((++env->steps >= env->limit) | x_out | angle_out) {
        cartpole_finish(env, x_out, angle_out);
    } else {
        *puffer_reward(&env->head, 0) = 1.0f;
    }
}

static void cartpole_draw(const void *state, PufferCanvas *canvas) {
    enum { WIDTH = 600, HEIGHT = 400, TRACK = 300 };
    const Cartpole *env = state;
    const float metre = WIDTH / (2.0f * CARTPOLE_MAX_X), x = WIDTH / 2.0f + env->x * metre;
    const float pole = fminf(2.0f * env->pole_length * metre, TRACK - 40.0f);
    char text[96];
    if (!puffer_canvas(canvas, WIDTH, HEIGHT, 1.0f / env->dt)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    puffer_line(canvas, 0.0f, TRACK, WIDTH, TRACK, 2.0f, PUFFER_WHITE);
    puffer_rect(canvas, x - 25.0f, TRACK - 15.0f, 50.0f, 30.0f, PUFFER_CYAN);
    puffer_line(canvas, x, TRACK - 15.0f, x + pole * sinf(env->angle), TRACK - 15.0f - pole * cosf(env->angle), 8.0f,
                PUFFER_RED);
    puffer_disc(canvas, x, TRACK - 15.0f, 5.0f, PUFFER_WHITE);
    snprintf(text, sizeof text, "STEP %d\nX %+.2f M %+.2f M/S\nANGLE %+.1f DEG %+.1f DEG/S", (int)env->steps,
             (double)env->x, (double)env->x_dot, (double)env->angle * 57.29578, (double)env->angle_dot * 57.29578);
    puffer_text(canvas, 10.0f, 10.0f, 2, PUFFER_WHITE, text);
}

// One line for the pole's top, leaning by its angle, and one for the track.
static int cartpole_text(const void *state, char *buf, size_t len) {
    enum { CELLS = 49 };
    const Cartpole *env = state;
    char track[CELLS + 1], top[CELLS + 1];
    const float share = fminf(fmaxf(env->x / CARTPOLE_MAX_X, -1.0f), 1.0f);
    const float lean = fminf(fmaxf(env->angle / CARTPOLE_MAX_ANGLE, -1.0f), 1.0f);
    const int cart = (int)lroundf((share + 1.0f) * 0.5f * (CELLS - 1));
    const int tip = cart + (int)lroundf(4.0f * lean);
    memset(track, '-', CELLS);
    memset(top, ' ', CELLS);
    track[cart] = 'H';
    top[tip < 0 ? 0 : tip >= CELLS ? CELLS - 1 : tip] = 'o';
    track[CELLS] = top[CELLS] = '\0';
    return snprintf(buf, len, "step %d  x %+.2f m  angle %+.1f deg\n%s\n%s\n", (int)env->steps, (double)env->x,
                    (double)env->angle * 57.29578, top, track);
}

static int cartpole_human(const void *state, const PufferKeys *keys, void *action) {
    const Cartpole *env = state;
    const int left = keys->down[PUFFER_KEY_LEFT] || keys->down['a'];
    const int right = keys->down[PUFFER_KEY_RIGHT] || keys->down['d'];
    if (env->continuous) {
        *(float *)action = (float)(right - left);
    } else {
        *(int32_t *)action = right && !left;
        if (!left && !right) return -1;  // no action leaves the cart alone
    }
    return left || right;
}

PUFFER_ENV(cartpole, Cartpole, .version = 1, .params = cartpole_params, .num_params = CARTPOLE_NUM_PARAMS,
           .log_fields = cartpole_log, .num_log_fields = CARTPOLE_NUM_LOG, .spaces = cartpole_spaces,
           .state_size = cartpole_state_size, .init = cartpole_init, .reset = cartpole_reset,
           .observe = cartpole_observe, .draw = cartpole_draw, .text = cartpole_text, .human = cartpole_human);

#endif
