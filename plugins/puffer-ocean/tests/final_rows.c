// Every environment, compiled so that each end of an episode is checked before its reset: the row that is kept as the
// final observation must be what `observe` shows of the state at that moment. test_final_observations.py plays them.
#include <puffer/draw.h>
#include <puffer/env.h>
#include <puffer/vec.h>

static const PufferEnvTable *watched;
static int64_t ends, wrong;
static uint8_t shown[1 << 20];

void watch(const PufferEnvTable *table) {
    watched = table;
    ends = wrong = 0;
}

int64_t ends_seen(void) { return ends; }

int64_t wrong_rows(void) { return wrong; }

static inline void checked_end(const PufferHead *head, int agent, int terminal, size_t row_bytes) {
    const uint8_t *row = puffer_obs(head, agent, row_bytes);
    watched->observe(head, agent, shown, NULL);
    ends++;
    wrong += row_bytes > sizeof shown || memcmp(row, shown, row_bytes) != 0;
    puffer_end(head, agent, terminal, row_bytes);
}

#define puffer_end checked_end
#include "env_includes.h"
