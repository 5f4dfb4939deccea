// The loop over many instances, compiled into every plugin: PUFFER_ENV(...) writes an environment's table.
//
// A vector is one block of instances, cut into fixed chunks of 64. A step goes through them: clear the rows, step the
// instances, add the logged rows to the chunk's sums. Chunks and the order inside them never depend on the number of
// threads, so neither does any result. Threads come from one pool per plugin, which is made at the first step that
// wants threads, is rebuilt in a forked child and sleeps while nothing steps. What a thread takes at a time is a piece:
// a chunk, or less of it where one instance has many agents.
#ifndef PUFFER_VEC_H
#define PUFFER_VEC_H

#include <puffer/env.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PUFFER_CHUNK 64  // instances; part of the contract, because the log is summed by chunk
#define PUFFER_MAX_INSTANCES 1048576
#define PUFFER_MAX_THREADS 256
#define PUFFER_LINE 64  // bytes of a cache line: state blocks begin on one

struct PufferVec {
    const PufferEnvTable *table;
    const PufferIO *io;
    PufferValue *params;
    void *shared;
    char *base;  // instances x stride bytes
    size_t stride;
    int64_t instances, chunks, pieces, first_index;
    int64_t piece;  // instances that a thread takes at a time; divides PUFFER_CHUNK
    int32_t agents, threads, log_fields;
    double *sums;     // (chunks, log_fields) of the rows logged since the last vec_log
    int64_t *logged;  // (chunks,) and their number
    int reseed;       // arguments of the reset that is running
    uint64_t seed;
};

static inline PufferHead *puffer_head(const PufferVec *vec, int64_t instance) {
    return (PufferHead *)(vec->base + (size_t)instance * vec->stride);
}

// ---------------------------------------------------------------------------------------------------------------------
// One chunk, or one piece.

// Rewards, flags and log marks of `count` instances, while their lines are about to be written anyway.
static inline void puffer_clear_rows(const PufferHead *first, int64_t count) {
    const PufferIO *io = first->io;
    const size_t row = (size_t)first->row, rows = (size_t)count * first->agents;
    memset(io->rewards + row, 0, rows * sizeof(float));
    memset(io->terminals + row, 0, rows);
    memset(io->truncations + row, 0, rows);
    if (io->logged != NULL) memset(io->logged + row, 0, rows);
}

// How many of `size` instances from `first` on there are.
static inline int64_t puffer_count(const PufferVec *vec, int64_t first, int64_t size) {
    return vec->instances - first < size ? vec->instances - first : size;
}

// Adds the chunk's logged rows to its own sums; most chunks have none, so marks are read eight at a time.
static inline void puffer_add_logs(PufferVec *vec, int64_t chunk) {
    const PufferIO *io = vec->io;
    if (io->logged == NULL || io->log == NULL) return;
    const size_t rows = (size_t)puffer_count(vec, chunk * PUFFER_CHUNK, PUFFER_CHUNK) * (size_t)vec->agents;
    const size_t first = (size_t)chunk * PUFFER_CHUNK * (size_t)vec->agents, fields = (size_t)vec->log_fields;
    double *sums = vec->sums + (size_t)chunk * fields;
    for (size_t i = 0; i < rows; i += 8) {
        uint64_t marks = 0;
        memcpy(&marks, io->logged + first + i, rows - i < 8 ? rows - i : 8);
        if (marks == 0) continue;
        for (size_t row = first + i; row < first + (rows - i < 8 ? rows : i + 8); row++) {
            if (!io->logged[row]) continue;
            const float *log = io->log + row * fields;
            for (size_t f = 0; f < fields; f++) sums[f] += (double)log[f];
            vec->logged[chunk]++;
        }
    }
}

static inline void puffer_step_piece(PufferVec *vec, int64_t piece) {
    const int64_t first = piece * vec->piece;
    vec->table->step_range(vec->base, vec->stride, first, puffer_count(vec, first, vec->piece));
    if (vec->piece == PUFFER_CHUNK) puffer_add_logs(vec, piece);
}

static inline void puffer_reset_piece(PufferVec *vec, int64_t piece) {
    const int64_t first = piece * vec->piece, count = puffer_count(vec, first, vec->piece);
    puffer_clear_rows(puffer_head(vec, first), count);
    for (int64_t k = first; k < first + count; k++) {
        PufferHead *head = puffer_head(vec, k);
        if (vec->reseed) {
            puffer_rng_seed(&head->rng, vec->seed, (uint64_t)(vec->first_index + k));
            head->fresh = 1;
        }
        for (int32_t agent = 0; agent < vec->agents; agent++) puffer_alive(head, agent, 1);
        vec->table->reset(head);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The pool. A job is all pieces of a vector, cut into one part per thread. Everyone takes pieces of the own part from
// the front and, when that is empty, of the others' from the back; so a worker that the system does not run holds
// nobody up. A part is one 64-bit word (next, end), and taking a piece is one compare-and-swap: a worker that wakes
// late finds either nothing to take or a piece of the job that runs now, and reads the job only after it has taken one.

typedef void (*PufferWork)(PufferVec *, int64_t piece);

typedef struct PufferPart {  // on a cache line of its own
    uint64_t range;          // next piece in the upper half, end in the lower
    char pad[PUFFER_LINE - sizeof(uint64_t)];
} PufferPart;

typedef struct PufferPool {
    pthread_mutex_t user;  // one job at a time
    pthread_mutex_t lock;  // guards sleeping
    pthread_cond_t wake, finished;
    int32_t workers, cores;
    uint32_t job;  // rises with every job
    int32_t sleepers, waiting;
    int32_t parts;
    PufferVec *vec;
    PufferWork work;
    char pad[PUFFER_LINE];
    int64_t left;  // pieces not done yet
    PufferPart part[PUFFER_MAX_THREADS];
} PufferPool;

#define PUFFER_POOL_INIT                \
    {.user = PTHREAD_MUTEX_INITIALIZER, \
     .lock = PTHREAD_MUTEX_INITIALIZER, \
     .wake = PTHREAD_COND_INITIALIZER,  \
     .finished = PTHREAD_COND_INITIALIZER}

static PufferPool puffer_pool = PUFFER_POOL_INIT;

static inline void puffer_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int64_t puffer_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// How long a thread waits before it sleeps. Being woken costs some 10 us, a step's turnaround in the host a few.
enum { PUFFER_SPINS = 64, PUFFER_YIELDS = 48, PUFFER_CROWDED_NS = 20000 };

// One round of waiting: spin where there is a core for it, then give way. 0 where sleeping is better: it took long
// enough, or somebody else had the core meanwhile; a sleeper that is woken gets it back sooner than one that gives way.
static inline int puffer_relax(int *round, int has_cores) {
    if (++*round <= PUFFER_SPINS && has_cores) {
        puffer_pause();
        return 1;
    }
    const int64_t before = puffer_now_ns();
    sched_yield();
    return *round <= PUFFER_SPINS + PUFFER_YIELDS && puffer_now_ns() - before < PUFFER_CROWDED_NS;
}

// Takes one piece of the part, from the front or the back; -1 when there is none.
static inline int64_t puffer_take(PufferPart *part, int front) {
    uint64_t range = __atomic_load_n(&part->range, __ATOMIC_ACQUIRE);
    for (;;) {
        const uint64_t next = range >> 32, end = range & UINT64_C(0xFFFFFFFF);
        if (next >= end) return -1;
        const uint64_t rest = front ? ((next + 1) << 32 | end) : (next << 32 | (end - 1));
        if (__atomic_compare_exchange_n(&part->range, &range, rest, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            return (int64_t)(front ? next : end - 1);
        }
    }
}

// Runs pieces until there are none left, and reports them all at once: the job can't end before that.
static inline void puffer_take_part(PufferPool *pool, int32_t self) {
    const int32_t parts = __atomic_load_n(&pool->parts, __ATOMIC_RELAXED);
    int64_t piece, done = 0;
    if (self >= parts) return;  // this job wants fewer threads
    for (int32_t i = 0; i < parts; i++) {
        PufferPart *part = &pool->part[(self + i) % parts];
        while ((piece = puffer_take(part, i == 0)) >= 0) {
            pool->work(pool->vec, piece);
            done++;
        }
    }
    if (done == 0) return;
    const int64_t left = __atomic_sub_fetch(&pool->left, done, __ATOMIC_SEQ_CST);
    if (left == 0 && __atomic_load_n(&pool->waiting, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->finished);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void *puffer_worker(void *argument) {
    PufferPool *pool = &puffer_pool;
    const int32_t self = (int32_t)(intptr_t)argument;
    uint32_t seen = 0;
    for (;;) {
        int round = 0;
        while (__atomic_load_n(&pool->job, __ATOMIC_ACQUIRE) == seen && puffer_relax(&round, pool->cores > 1)) continue;
        if (__atomic_load_n(&pool->job, __ATOMIC_ACQUIRE) == seen) {
            // The job is counted up before sleepers are counted: one of the two sides sees the other.
            pthread_mutex_lock(&pool->lock);
            __atomic_add_fetch(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&pool->job, __ATOMIC_SEQ_CST) == seen) pthread_cond_wait(&pool->wake, &pool->lock);
            __atomic_sub_fetch(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
            pthread_mutex_unlock(&pool->lock);
        }
        seen = __atomic_load_n(&pool->job, __ATOMIC_ACQUIRE);
        puffer_take_part(pool, self);
    }
    return NULL;
}

// A forked child has none of the workers: it starts with an empty pool and never joins theirs.
static void puffer_pool_after_fork(void) {
    static const PufferPool empty = PUFFER_POOL_INIT;
    puffer_pool = empty;
}

// Called with `user` held. Fewer workers than asked for is no error: the caller takes every part that is left.
static inline void puffer_pool_grow(PufferPool *pool, int32_t workers) {
    static int registered = 0;
    if (!registered) registered = pthread_atfork(NULL, NULL, puffer_pool_after_fork) == 0;
    if (pool->workers == 0) pool->cores = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);  // workers read it
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the host's threads
    for (; pool->workers < workers; pool->workers++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, puffer_worker, (void *)(intptr_t)(pool->workers + 1)) != 0) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// Waits until every piece has been reported.
static inline void puffer_pool_wait(PufferPool *pool) {
    int round = 0;
    while (__atomic_load_n(&pool->left, __ATOMIC_ACQUIRE) > 0 && puffer_relax(&round, pool->cores > 1)) continue;
    if (__atomic_load_n(&pool->left, __ATOMIC_ACQUIRE) == 0) return;
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&pool->left, __ATOMIC_SEQ_CST) > 0) pthread_cond_wait(&pool->finished, &pool->lock);
    __atomic_store_n(&pool->waiting, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->lock);
}

// Runs one job: publishes it, takes part in it and waits for the rest. Only one host thread at a time is in here.
static inline void puffer_pool_run(PufferVec *vec, PufferWork work, int32_t threads) {
    PufferPool *pool = &puffer_pool;
    pthread_mutex_lock(&pool->user);
    if (pool->workers < threads - 1) puffer_pool_grow(pool, threads - 1);
    pool->vec = vec;
    pool->work = work;
    __atomic_store_n(&pool->left, vec->pieces, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->parts, threads, __ATOMIC_RELAXED);
    for (int32_t i = 0; i < threads; i++) {  // publishes the job: a piece can be taken from here on
        const uint64_t next = (uint64_t)(vec->pieces * i / threads), end = (uint64_t)(vec->pieces * (i + 1) / threads);
        __atomic_store_n(&pool->part[i].range, next << 32 | end, __ATOMIC_RELEASE);
    }
    __atomic_add_fetch(&pool->job, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    puffer_take_part(pool, 0);
    puffer_pool_wait(pool);
    pthread_mutex_unlock(&pool->user);
}

// `work` on every piece of the vector; without threads in order, here.
static inline void puffer_run(PufferVec *vec, PufferWork work) {
    const int32_t threads = vec->threads < vec->pieces ? vec->threads : (int32_t)vec->pieces;
    if (threads > 1) {
        puffer_pool_run(vec, work, threads);
    } else {
        for (int64_t piece = 0; piece < vec->pieces; piece++) work(vec, piece);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The vector, behind the table's vec_* functions.

static void puffer_vec_free(PufferVec *vec) {
    if (vec == NULL) return;
    if (vec->shared != NULL && vec->table->shared_free != NULL) vec->table->shared_free(vec->shared);
    free(vec->base);
    free(vec->sums);
    free(vec->logged);
    free(vec->params);
    free(vec);
}

// 1, and a message, where the arguments of vec_new are not legal; parameters are the business of `check`.
static inline int puffer_vec_refuse(const PufferEnvTable *table, int64_t instances, const PufferIO *io, int32_t threads,
                                    char *err, size_t len) {
    if (instances < 1 || instances > PUFFER_MAX_INSTANCES) {
        snprintf(err, len, "%s: %lld instances, legal are 1 to %d", table->name, (long long)instances,
                 PUFFER_MAX_INSTANCES);
    } else if (threads < 0 || threads > PUFFER_MAX_THREADS) {
        snprintf(err, len, "%s: %d threads, legal are 0 to %d", table->name, (int)threads, PUFFER_MAX_THREADS);
    } else if (io == NULL || io->observations == NULL || io->actions == NULL || io->rewards == NULL ||
               io->terminals == NULL || io->truncations == NULL) {
        snprintf(err, len, "%s: observations, actions, rewards, terminals and truncations are required", table->name);
    } else if (table->num_log_fields < 0 || table->num_log_fields > PUFFER_MAX_LOG_FIELDS) {
        snprintf(err, len, "%s: %d log fields, legal are 0 to %d", table->name, (int)table->num_log_fields,
                 PUFFER_MAX_LOG_FIELDS);
    } else {
        return 0;
    }
    return 1;
}

// Allocates everything the vector will ever need; the only allocation besides shared_new.
static inline int puffer_vec_allocate(PufferVec *vec, const PufferValue *params) {
    const PufferEnvTable *table = vec->table;
    const size_t size = table->state_size(params), lines = (size + PUFFER_LINE - 1) / PUFFER_LINE;
    if (size < sizeof(PufferHead) || lines > SIZE_MAX / PUFFER_LINE / (size_t)vec->instances) return 0;
    vec->stride = lines * PUFFER_LINE;
    vec->base = (char *)aligned_alloc(PUFFER_LINE, vec->stride * (size_t)vec->instances);
    vec->params = (PufferValue *)calloc((size_t)table->num_params + 1, sizeof(PufferValue));
    vec->sums = (double *)calloc((size_t)vec->chunks * (size_t)(table->num_log_fields + 1), sizeof(double));
    vec->logged = (int64_t *)calloc((size_t)vec->chunks, sizeof(int64_t));
    if (vec->base == NULL || vec->params == NULL || vec->sums == NULL || vec->logged == NULL) return 0;
    memset(vec->base, 0, vec->stride * (size_t)vec->instances);
    if (table->num_params > 0) memcpy(vec->params, params, (size_t)table->num_params * sizeof(PufferValue));
    return 1;
}

// Seeds and initialises every instance; nothing is written to the buffers before the first vec_reset.
static inline PufferVec *puffer_vec_new(const PufferEnvTable *table, const PufferValue *params, int64_t instances,
                                        uint64_t seed, int64_t first_index, const PufferIO *io, int32_t threads,
                                        char *err, size_t len) {
    if (puffer_vec_refuse(table, instances, io, threads, err, len)) return NULL;
    if (table->check != NULL && table->check(params, err, len) != 0) return NULL;
    PufferSpaces spaces;
    memset(&spaces, 0, sizeof spaces);
    table->spaces(params, &spaces);
    PufferVec *vec = (PufferVec *)calloc(1, sizeof(PufferVec));
    if (vec == NULL) return NULL;
    vec->table = table;
    vec->io = io;
    vec->instances = instances;
    vec->chunks = (instances + PUFFER_CHUNK - 1) / PUFFER_CHUNK;
    vec->first_index = first_index;
    vec->agents = spaces.agents;
    for (vec->piece = PUFFER_CHUNK; vec->piece > 1 && vec->piece * spaces.agents > PUFFER_CHUNK;) vec->piece /= 2;
    vec->pieces = (instances + vec->piece - 1) / vec->piece;
    vec->threads = threads;
    vec->log_fields = table->num_log_fields;
    if (!puffer_vec_allocate(vec, params)) {
        snprintf(err, len, "%s: no memory for %lld instances of %zu bytes", table->name, (long long)instances,
                 table->state_size(params));
        puffer_vec_free(vec);
        return NULL;
    }
    if (table->shared_new != NULL && (vec->shared = table->shared_new(vec->params, err, len)) == NULL) {
        puffer_vec_free(vec);
        return NULL;
    }
    for (int64_t k = 0; k < instances; k++) {
        PufferHead *head = puffer_head(vec, k);
        head->io = io;
        head->row = k * spaces.agents;
        head->agents = (uint32_t)spaces.agents;
        head->fresh = 1;
        puffer_rng_seed(&head->rng, seed, (uint64_t)(first_index + k));
        table->init(head, vec->params, vec->shared);
    }
    return vec;
}

// Means are the host's to take: sums of every field, and how many rows they are of.
static int64_t puffer_vec_log(PufferVec *vec, double *sums) {
    const size_t fields = (size_t)vec->log_fields;
    int64_t rows = 0;
    memset(sums, 0, fields * sizeof(double));
    for (int64_t chunk = 0; chunk < vec->chunks; chunk++) {
        if (vec->logged[chunk] == 0) continue;
        double *from = vec->sums + (size_t)chunk * fields;
        for (size_t f = 0; f < fields; f++) sums[f] += from[f];
        memset(from, 0, fields * sizeof(double));
        rows += vec->logged[chunk];
        vec->logged[chunk] = 0;
    }
    return rows;
}

// Reseeding begins anew, so it also forgets what was logged before.
static void puffer_vec_reset(PufferVec *vec, int reseed, uint64_t seed) {
    double forgotten[PUFFER_MAX_LOG_FIELDS];
    vec->reseed = reseed;
    vec->seed = seed;
    if (reseed) puffer_vec_log(vec, forgotten);
    puffer_run(vec, puffer_reset_piece);
}

static void puffer_vec_step(PufferVec *vec) {
    puffer_run(vec, puffer_step_piece);
    if (vec->piece == PUFFER_CHUNK) return;
    for (int64_t chunk = 0; chunk < vec->chunks; chunk++) puffer_add_logs(vec, chunk);
}

static void *puffer_vec_base(PufferVec *vec, size_t *stride) {
    *stride = vec->stride;
    return vec->base;
}

// ---------------------------------------------------------------------------------------------------------------------
// The table of one environment. A plugin that compiles a file several times defines PUFFER_SUFFIX as, say, _v3.

#define PUFFER_JOIN_(a, b, c) a##b##c
#define PUFFER_JOIN(a, b, c) PUFFER_JOIN_(a, b, c)
#ifndef PUFFER_SUFFIX
#define PUFFER_SUFFIX
#endif
#define PUFFER_TABLE(name) PUFFER_JOIN(puffer_env_, name, PUFFER_SUFFIX)

// PUFFER_ENV(breakout, Breakout, .version = 1, ...) defines `const PufferEnvTable puffer_env_breakout`; C only.
// The step function has the fixed name breakout_step, is static inline and takes a Breakout *: it is inlined into the
// loop. What else the environment has (reset, observe, draw, ...) is given by name, with the signatures of the table.
#define PUFFER_ENV(name_, Type, ...)                                                                              \
    extern const PufferEnvTable PUFFER_TABLE(name_);                                                              \
    static void name_##_step_one(void *state) { name_##_step((Type *)state); }                                    \
    static void name_##_step_range(void *base, size_t stride, int64_t first, int64_t count) {                     \
        char *state = (char *)base + (size_t)first * stride;                                                      \
        if (count <= 0) return;                                                                                   \
        puffer_clear_rows((const PufferHead *)state, count);                                                      \
        for (int64_t k = 0; k < count; k++, state += stride) name_##_step((Type *)state);                         \
    }                                                                                                             \
    static PufferVec *name_##_vec_new(const PufferValue *params, int64_t instances, uint64_t seed,                \
                                      int64_t first_index, const PufferIO *io, int32_t threads, char *err,        \
                                      size_t len) {                                                               \
        return puffer_vec_new(&PUFFER_TABLE(name_), params, instances, seed, first_index, io, threads, err, len); \
    }                                                                                                             \
    const PufferEnvTable PUFFER_TABLE(name_) = {.abi_version = PUFFER_ABI_VERSION,                                \
                                                .table_size = sizeof(PufferEnvTable),                             \
                                                .io_size = sizeof(PufferIO),                                      \
                                                .param_size = sizeof(PufferParam),                                \
                                                .spaces_size = sizeof(PufferSpaces),                              \
                                                .name = #name_,                                                   \
                                                .step = name_##_step_one,                                         \
                                                .step_range = name_##_step_range,                                 \
                                                .vec_new = name_##_vec_new,                                       \
                                                .vec_reset = puffer_vec_reset,                                    \
                                                .vec_step = puffer_vec_step,                                      \
                                                .vec_base = puffer_vec_base,                                      \
                                                .vec_log = puffer_vec_log,                                        \
                                                .vec_free = puffer_vec_free,                                      \
                                                __VA_ARGS__}

#endif
