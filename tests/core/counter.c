// counter: a third party's environment for tests. Two agents count up what they choose; an episode lasts `limit` ticks.
// Agent 0 ends with a terminal, agent 1 with a truncation, and with `absent` agent 1 is not there in the first tick.
//
// Observation, float32 (2,): tick, count. Action, MultiDiscrete([3, 2]): what is added, and a second head of no effect.
#include <puffer/draw.h>
#include <puffer/vec.h>

enum { COUNTER_AGENTS = 2, COUNTER_HEADS = 2, COUNTER_MASK = 5, COUNTER_ROW = 2 * sizeof(float) };
enum { COUNTER_LIMIT, COUNTER_BONUS, COUNTER_START, COUNTER_ABSENT, COUNTER_TITLE, COUNTER_NUM_PARAMS };

static const char *const counter_starts[] = {"zero", "random", NULL};
static const PufferParam counter_params[] = {
    PUFFER_P_INT("limit", 5, 3, 99, 2, 0, "Ticks of an episode, odd."),
    PUFFER_P_FLOAT("bonus", 0.5, 0, 2, PUFFER_LIVE, "Reward per unit counted."),
    PUFFER_P_ENUM("start", 1, counter_starts, 0, "Where counting starts."),
    PUFFER_P_BOOL("absent", 0, 0, "Whether agent 1 is missing in the first tick."),
    PUFFER_P_STRING("title", "counter", 0, "What the text view begins with."),
};
static const char *const counter_log[] = {"score", "perf", "episode_return", "episode_length", "illegal_actions"};

typedef struct Counter {
    PufferHead head;
    int32_t limit, absent, is_random, tick;
    float bonus, pending;
    float count[COUNTER_AGENTS], gain[COUNTER_AGENTS];
    int32_t illegal[COUNTER_AGENTS];
    char title[16];
} Counter;

static int counter_check(const PufferValue *p, char *err, size_t len) {
    if (p[COUNTER_LIMIT].i <= 90 || p[COUNTER_BONUS].f <= 1) return 0;
    snprintf(err, len, "limit=%d with bonus=%g counts too far", (int)p[COUNTER_LIMIT].i, p[COUNTER_BONUS].f);
    return 1;
}

static void counter_spaces(const PufferValue *p, PufferSpaces *spaces) {
    (void)p;
    spaces->obs_dtype = PUFFER_F32;
    spaces->obs_ndim = 1;
    spaces->obs_shape[0] = 2;
    spaces->obs_high = 1000;
    spaces->action_kind = PUFFER_MULTI;
    spaces->num_heads = COUNTER_HEADS;
    spaces->head_size[0] = 3;
    spaces->head_size[1] = 2;
    spaces->agents = COUNTER_AGENTS;
    spaces->has_mask = spaces->has_alive = 1;
}

static size_t counter_state_size(const PufferValue *p) {
    (void)p;
    return sizeof(Counter);
}

static void counter_set_params(void *state, const PufferValue *p) {
    Counter *env = state;
    env->pending = (float)p[COUNTER_BONUS].f;
}

static void counter_init(void *state, const PufferValue *p, const void *shared) {
    Counter *env = state;
    (void)shared;
    env->limit = (int32_t)p[COUNTER_LIMIT].i;
    env->is_random = (int32_t)p[COUNTER_START].i;
    env->absent = (int32_t)p[COUNTER_ABSENT].i;
    strncpy(env->title, p[COUNTER_TITLE].s, sizeof env->title - 1);
    counter_set_params(state, p);
}

static int counter_is_there(const Counter *env, int agent) { return agent == 0 || !env->absent || env->tick > 0; }

static void counter_observe(const void *state, int32_t agent, void *obs_row, uint8_t *mask_row) {
    const Counter *env = state;
    float *row = obs_row;
    const int is_there = counter_is_there(env, agent);
    row[0] = is_there ? (float)env->tick : 0.0f;
    row[1] = is_there ? env->count[agent] : 0.0f;
    if (mask_row == NULL) return;
    memset(mask_row, 1, COUNTER_MASK);
    mask_row[2] = env->tick % 2 == 0;  // adding two is for even ticks
}

static void counter_write(Counter *env) {
    for (int agent = 0; agent < COUNTER_AGENTS; agent++) {
        puffer_alive(&env->head, agent, counter_is_there(env, agent));
        counter_observe(env, agent, puffer_obs(&env->head, agent, COUNTER_ROW),
                        puffer_mask_row(&env->head, agent, COUNTER_MASK));
    }
}

static void counter_reset(void *state) {
    Counter *env = state;
    env->head.fresh = 0;
    env->bonus = env->pending;
    env->tick = 0;
    for (int agent = 0; agent < COUNTER_AGENTS; agent++) {
        env->count[agent] = env->is_random ? (float)puffer_rng_below(&env->head.rng, 100) : 0.0f;
        env->gain[agent] = 0;
        env->illegal[agent] = 0;
    }
    counter_write(env);
}

static inline void counter_step(Counter *env) {
    for (int agent = 0; agent < COUNTER_AGENTS; agent++) {
        if (!counter_is_there(env, agent)) continue;
        const int add = puffer_discrete(&env->head, agent, 0, COUNTER_HEADS, 3, 0, &env->illegal[agent]);
        env->count[agent] += (float)add;
        env->gain[agent] += env->bonus * (float)add;
        *puffer_reward(&env->head, agent) = env->bonus * (float)add;
    }
    env->tick++;
    counter_write(env);
    if (env->tick < env->limit) return;
    for (int agent = 0; agent < COUNTER_AGENTS; agent++) {
        puffer_end(&env->head, agent, agent == 0, COUNTER_ROW);
        float *log = puffer_log(&env->head, agent, 5);
        log[0] = log[2] = env->gain[agent];
        log[3] = (float)env->tick;
        log[4] = (float)env->illegal[agent];
    }
    counter_reset(env);
}

static void counter_draw(const void *state, PufferCanvas *canvas) {
    const Counter *env = state;
    if (!puffer_canvas(canvas, 64, 32, 30)) return;
    puffer_clear(canvas, PUFFER_BACKGROUND);
    puffer_rect(canvas, 0, 0, (float)env->tick, 32, PUFFER_CYAN);
}

static int counter_text(const void *state, char *buf, size_t len) {
    const Counter *env = state;
    return snprintf(buf, len, "%s: tick %d\n", env->title, (int)env->tick);
}

PUFFER_ENV(counter, Counter, .version = 3, .params = counter_params, .num_params = COUNTER_NUM_PARAMS,
           .log_fields = counter_log, .num_log_fields = 5, .check = counter_check, .spaces = counter_spaces,
           .state_size = counter_state_size, .init = counter_init, .set_params = counter_set_params,
           .reset = counter_reset, .observe = counter_observe, .draw = counter_draw, .text = counter_text);
