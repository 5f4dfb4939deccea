// Steps every environment of env_table.h with random parameters and actions, to be built with sanitizers (run.py).
//
// The buffers are exactly as large as the interface says, so that a write beside a row is seen. Each round opens a
// vector with another set of parameters, number of instances and threads, plays it with legal, illegal and extreme
// actions, moves states between instances, changes LIVE parameters, draws and closes. In between two vectors are
// stepped by two threads of the host at the same time. Last come LIVES vectors that only take one step each.
// Usage: fuzz SEED ROUNDS THREADS [ENV]
#include <puffer/draw.h>
#include <puffer/env.h>
#include <puffer/vec.h>

#include <limits.h>
#include <pthread.h>

#include "env_includes.h"
#include "env_table.h"

enum { STEPS = 200, LIVES = 200, MAX_ROW_BYTES = 1 << 16, MAX_STATE_BYTES = 1 << 20, MAX_ROWS = 2048, MAX_PARAMS = 64 };

typedef struct Setup {  // one vector and its arrays
    const PufferEnvTable *table;
    PufferValue params[MAX_PARAMS];
    PufferSpaces spaces;
    size_t row_bytes, action_bytes, mask_bytes;
    int64_t instances, rows;
    PufferIO io;
    PufferVec *vec;
} Setup;

static void fail(const Setup *setup, const char *what) {
    fprintf(stderr, "%s: %s\n", setup->table->name, what);
    exit(1);
}

// ---------------------------------------------------------------------------------------------------------------------
// Parameters

static int64_t random_int(PufferRng *rng, int64_t low, int64_t high, int64_t step) {
    // Ranges are sampled by magnitude, since most of a wide one is too large to open.
    const uint64_t span = (uint64_t)(high - low), most = span >> puffer_rng_below(rng, 24);
    const uint64_t offset = (((uint64_t)puffer_rng_next(rng) << 32) | puffer_rng_next(rng)) % (most + 1);
    return low + (int64_t)(step > 1 ? offset / (uint64_t)step * (uint64_t)step : offset);
}

static PufferValue random_value(const PufferParam *param, PufferRng *rng) {
    PufferValue value = param->init;
    const uint32_t kind = puffer_rng_below(rng, 4);  // minimum, maximum, or anything
    int64_t choices = 0;
    switch (param->kind) {
        case PUFFER_FLOAT:
            value.f = param->min.f + (param->max.f - param->min.f) * (double)puffer_rng_uniform(rng);
            if (kind < 2) value = kind == 0 ? param->min : param->max;
            break;
        case PUFFER_ENUM:
            while (param->choices[choices] != NULL) choices++;
            value.i = puffer_rng_below(rng, (uint32_t)choices);
            break;
        case PUFFER_INT:
        case PUFFER_BOOL:
            value.i = random_int(rng, param->min.i, param->max.i, param->step.i);
            if (kind == 0) value = param->min;
            break;
        case PUFFER_STRING:
            break;
    }
    return value;
}

static int is_legal(const PufferEnvTable *table, const PufferValue *params) {
    char err[256];
    return table->check == NULL || table->check(params, err, sizeof err) == 0;
}

static int is_small(Setup *setup) {
    static const size_t sizes[] = {0, 1, 1, 4};  // by PufferDtype
    const PufferEnvTable *table = setup->table;
    PufferSpaces *spaces = &setup->spaces;
    memset(spaces, 0, sizeof *spaces);
    table->spaces(setup->params, spaces);
    setup->row_bytes = sizes[spaces->obs_dtype];
    for (int i = 0; i < spaces->obs_ndim; i++) setup->row_bytes *= (size_t)spaces->obs_shape[i];
    setup->action_bytes = spaces->action_kind == PUFFER_DISCRETE ? 4 : 4 * (size_t)spaces->num_heads;
    setup->mask_bytes = 0;
    for (int i = 0; spaces->has_mask && i < spaces->num_heads; i++) setup->mask_bytes += (size_t)spaces->head_size[i];
    return setup->row_bytes <= MAX_ROW_BYTES && spaces->agents <= MAX_ROWS &&
           table->state_size(setup->params) <= MAX_STATE_BYTES;
}

// Changes the defaults one parameter at a time and keeps what is legal and small.
static void choose_params(Setup *setup, PufferRng *rng, int round) {
    const PufferEnvTable *table = setup->table;
    for (int i = 0; i < table->num_params; i++) setup->params[i] = table->params[i].init;
    for (int i = 0; i < table->num_params && round > 0; i++) {
        const PufferValue before = setup->params[i];
        if (puffer_rng_below(rng, 2)) continue;
        setup->params[i] = random_value(&table->params[i], rng);
        if (!is_legal(table, setup->params) || !is_small(setup)) setup->params[i] = before;
    }
    if (!is_small(setup)) fail(setup, "the defaults are too large for this test");
}

// ---------------------------------------------------------------------------------------------------------------------
// One vector

static void *array(size_t bytes) {
    void *block = malloc(bytes ? bytes : 1);
    if (block == NULL) abort();
    memset(block, 0xA5, bytes);  // nothing may depend on what is in it
    return block;
}

static void open_vector(Setup *setup, PufferRng *rng, int threads) {
    const PufferEnvTable *table = setup->table;
    static const int64_t counts[] = {1, 3, 65, 200};
    const int64_t agents = setup->spaces.agents, most = MAX_ROWS / agents > 0 ? MAX_ROWS / agents : 1;
    const int64_t wanted = counts[puffer_rng_below(rng, 4)];
    char err[256] = "";
    setup->instances = wanted < most ? wanted : most;
    setup->rows = setup->instances * agents;
    const size_t rows = (size_t)setup->rows;
    PufferIO *io = &setup->io;
    memset(io, 0, sizeof *io);
    io->observations = array(rows * setup->row_bytes);
    io->actions = array(rows * setup->action_bytes);
    io->rewards = array(rows * sizeof(float));
    io->terminals = array(rows);
    io->truncations = array(rows);
    if (puffer_rng_below(rng, 4)) io->alive = array(rows);
    if (puffer_rng_below(rng, 4) && setup->spaces.has_mask) io->action_mask = array(rows * setup->mask_bytes);
    if (puffer_rng_below(rng, 4)) io->final_observations = array(rows * setup->row_bytes);
    if (puffer_rng_below(rng, 4)) io->log = array(rows * (size_t)table->num_log_fields * sizeof(float));
    if (puffer_rng_below(rng, 4)) io->logged = array(rows);
    setup->vec = table->vec_new(setup->params, setup->instances, puffer_rng_next(rng), puffer_rng_below(rng, 1000), io,
                                threads, err, sizeof err);
    if (setup->vec == NULL) fail(setup, err);
}

static void close_vector(Setup *setup) {
    setup->table->vec_free(setup->vec);
    void **arrays = (void **)&setup->io;
    for (size_t i = 0; i < offsetof(PufferIO, reserved) / sizeof(void *); i++) free(arrays[i]);
}

static void choose_actions(Setup *setup, PufferRng *rng) {
    static const int32_t odd[] = {INT_MIN, INT_MAX, -1, 1000, 256};
    static const float far[] = {NAN, INFINITY, -INFINITY, 1e30f, -1.5f};
    const PufferSpaces *spaces = &setup->spaces;
    const int heads = spaces->action_kind == PUFFER_DISCRETE ? 1 : spaces->num_heads;
    const uint32_t share = puffer_rng_below(rng, 2) ? 16 : 1000000;  // one in `share` is illegal
    for (int64_t i = 0; i < setup->rows * heads; i++) {
        const int is_odd = puffer_rng_below(rng, share) == 0;
        if (spaces->action_kind == PUFFER_BOX) {
            ((float *)setup->io.actions)[i] = is_odd ? far[puffer_rng_below(rng, 5)] : puffer_rng_range(rng, -1, 1);
        } else {
            const uint32_t size = (uint32_t)spaces->head_size[i % heads];
            ((int32_t *)setup->io.actions)[i] =
                is_odd ? odd[puffer_rng_below(rng, 5)] : (int32_t)puffer_rng_below(rng, size);
        }
    }
}

static void *state_of(Setup *setup, int64_t instance, size_t *stride) {
    char *base = setup->table->vec_base(setup->vec, stride);
    return base + (size_t)instance * *stride;
}

// Copies the state of one instance over another, as a host restores one: patch the head, show the rows.
static void move_state(Setup *setup, PufferRng *rng) {
    const uint32_t count = (uint32_t)setup->instances;
    size_t stride;
    const void *from = state_of(setup, puffer_rng_below(rng, count), &stride);
    void *to = state_of(setup, puffer_rng_below(rng, count), &stride);
    PufferHead *head = to, kept = *head;
    if (from == to) return;
    memcpy(to, from, stride);
    head->io = kept.io;
    head->row = kept.row;
    for (int32_t agent = 0; agent < setup->spaces.agents; agent++) {
        setup->table->observe(to, agent, puffer_obs(head, agent, setup->row_bytes),
                              puffer_mask_row(head, agent, (int)setup->mask_bytes));
    }
}

static void change_params(Setup *setup, PufferRng *rng) {
    const PufferEnvTable *table = setup->table;
    PufferValue params[MAX_PARAMS];
    size_t stride;
    if (table->set_params == NULL) return;
    memcpy(params, setup->params, sizeof params);
    for (int i = 0; i < table->num_params; i++) {
        if (table->params[i].flags & PUFFER_LIVE) params[i] = random_value(&table->params[i], rng);
    }
    if (!is_legal(table, params)) return;
    for (int64_t k = 0; k < setup->instances; k++) table->set_params(state_of(setup, k, &stride), params);
}

static void look(Setup *setup, PufferRng *rng) {
    const PufferEnvTable *table = setup->table;
    size_t stride;
    void *state = state_of(setup, puffer_rng_below(rng, (uint32_t)setup->instances), &stride);
    if (table->draw != NULL) {
        PufferCanvas canvas = {.zoom = 1};
        table->draw(state, &canvas);
        if (canvas.width < 1 || canvas.height < 1 || !(canvas.fps > 0)) fail(setup, "draw does not say its size");
        canvas.rgb = array((size_t)canvas.width * (size_t)canvas.height * 3);
        table->draw(state, &canvas);
        free(canvas.rgb);
    }
    if (table->text != NULL) {
        const int needed = table->text(state, NULL, 0);
        const size_t len = puffer_rng_below(rng, 2) ? (size_t)needed + 1 : 7;
        char *text = array(len);
        if (table->text(state, text, len) != needed) fail(setup, "text depends on the room it has");
        if (strlen(text) >= len) fail(setup, "text is not terminated");
        free(text);
    }
    if (table->human != NULL) {
        PufferKeys keys = {.mouse_x = puffer_rng_uniform(rng), .mouse_y = puffer_rng_uniform(rng), .mouse = 1};
        keys.agent = (uint16_t)puffer_rng_below(rng, setup->spaces.agents < 65536 ? setup->spaces.agents : 65536);
        void *action = array(setup->action_bytes);
        for (int i = 0; i < 128; i++) keys.down[i] = keys.pressed[i] = puffer_rng_below(rng, 8) == 0;
        table->human(state, &keys, action);
        free(action);
    }
}

static void play(Setup *setup, PufferRng *rng, int steps) {
    double sums[PUFFER_MAX_LOG_FIELDS];
    setup->table->vec_reset(setup->vec, 1, puffer_rng_next(rng));
    for (int step = 0; step < steps; step++) {
        choose_actions(setup, rng);
        setup->table->vec_step(setup->vec);
        if (puffer_rng_below(rng, 16) == 0) move_state(setup, rng);
        if (puffer_rng_below(rng, 64) == 0) change_params(setup, rng);
        if (puffer_rng_below(rng, 64) == 0) look(setup, rng);
        if (puffer_rng_below(rng, 64) == 0) setup->table->vec_reset(setup->vec, 0, 0);
    }
    setup->table->vec_log(setup->vec, sums);
}

// ---------------------------------------------------------------------------------------------------------------------
// Rounds

typedef struct Task {
    Setup *setup;
    PufferRng rng;
} Task;

static void *play_task(void *argument) {
    Task *task = argument;
    play(task->setup, &task->rng, STEPS / 4);
    return NULL;
}

// Two threads of the host, one vector each: they share the pool.
static void play_together(Setup *setups, PufferRng *rng) {
    pthread_t threads[2];
    Task tasks[2];
    for (int i = 0; i < 2; i++) {
        tasks[i].setup = &setups[i];
        puffer_rng_seed(&tasks[i].rng, puffer_rng_next(rng), (uint64_t)i);
        if (pthread_create(&threads[i], NULL, play_task, &tasks[i]) != 0) abort();
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void fuzz(const PufferEnvTable *table, uint64_t seed, int rounds, int max_threads) {
    for (int round = 0; round < rounds; round++) {
        static Setup setups[2];
        PufferRng rng;
        puffer_rng_seed(&rng, seed, (uint64_t)round);
        for (int i = 0; i < 2; i++) {
            memset(&setups[i], 0, sizeof setups[i]);
            setups[i].table = table;
            choose_params(&setups[i], &rng, round);
            open_vector(&setups[i], &rng, 1 + (round + i) % max_threads);
        }
        // Large rows cost more; every round takes about as long.
        const int64_t cost = setups[0].rows * (int64_t)(setups[0].row_bytes + 256) / (1 << 16);
        play(&setups[0], &rng, cost < STEPS / 8 ? STEPS / (int)(cost + 1) + 8 : 8);
        if (round % 4 == 1) play_together(setups, &rng);
        for (int i = 0; i < 2; i++) close_vector(&setups[i]);
    }
}

// Short lives, for what each of them might leave behind; every tenth opens with other parameters.
static void live(const PufferEnvTable *table, uint64_t seed) {
    PufferRng rng;
    puffer_rng_seed(&rng, seed, UINT32_MAX);
    for (int life = 0; life < LIVES; life++) {
        static Setup setup;
        memset(&setup, 0, sizeof setup);
        setup.table = table;
        choose_params(&setup, &rng, life % 10 == 9);
        open_vector(&setup, &rng, 1 + life % 2);
        setup.table->vec_reset(setup.vec, 1, puffer_rng_next(&rng));
        choose_actions(&setup, &rng);
        setup.table->vec_step(setup.vec);
        close_vector(&setup);
    }
}

static void test(const PufferEnvTable *table, uint64_t seed, int rounds, int max_threads) {
    fuzz(table, seed, rounds, max_threads);
    live(table, seed);
    printf("%s: %d rounds, %d lives\n", table->name, rounds, LIVES);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: fuzz SEED ROUNDS THREADS [ENV]\n");
        return 2;
    }
#define PUFFER_FUZZ(name)                        \
    if (argc < 5 || strcmp(argv[4], #name) == 0) \
        test(&puffer_env_##name, strtoull(argv[1], NULL, 10), atoi(argv[2]), atoi(argv[3]));
    PUFFER_ENVS(PUFFER_FUZZ)
    return 0;
}
