// The module puffer_ocean._native: one capsule per row of env_table.h, and the x86-64 level they were compiled for.
//
// Nothing here names an environment, and no call goes through here once a capsule has been handed over: puffer_core
// reaches the functions of a table through ctypes. The level is the highest one this processor has; PUFFER_ISA asks
// for another, which tests use to compare them.
#include <pybind11/pybind11.h>

#include <cstdlib>
#include <string>

#include "env_table.h"
#include "puffer/env.h"

namespace py = pybind11;

// The tables of envs.c, by level.
#define DECLARE_V2(name) extern const PufferEnvTable puffer_env_##name##_v2;
#define DECLARE_V3(name) extern const PufferEnvTable puffer_env_##name##_v3;
#define DECLARE_V4(name) extern const PufferEnvTable puffer_env_##name##_v4;
#define DECLARE_BASE(name) extern const PufferEnvTable puffer_env_##name##_base;
extern "C" {
#if defined(__x86_64__)
PUFFER_ENVS(DECLARE_V2)
PUFFER_ENVS(DECLARE_V3)
PUFFER_ENVS(DECLARE_V4)
#else
PUFFER_ENVS(DECLARE_BASE)
#endif
}

namespace {

#if defined(__x86_64__)
const char *const kLevels[] = {"v2", "v3", "v4"};

// What -march=x86-64-vN lets the compiler use; a hypervisor may hide a part of it.
bool has_level(int level) {
    __builtin_cpu_init();
    const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe");
    if (level < 2) return level == 1 ? v3 : v2;
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

#define ADD(name) \
    add(module, #name, level, {&puffer_env_##name##_v2, &puffer_env_##name##_v3, &puffer_env_##name##_v4});
using Tables = const PufferEnvTable *[3];
#else
const char *const kLevels[] = {"base"};

bool has_level(int) { return true; }

#define ADD(name) add(module, #name, level, {&puffer_env_##name##_base});
using Tables = const PufferEnvTable *[1];
#endif

constexpr int kNumLevels = sizeof(kLevels) / sizeof(kLevels[0]);

// The level asked for by PUFFER_ISA, else the highest that this processor has.
int choose_level() {
    const char *wanted = std::getenv("PUFFER_ISA");
    for (int level = kNumLevels - 1; level >= 0; level--) {
        const bool named = wanted != nullptr && std::string(wanted) == kLevels[level];
        if (wanted != nullptr && *wanted != '\0' && !named) continue;
        if (has_level(level)) return level;
        if (named) throw py::import_error("PUFFER_ISA=" + std::string(wanted) + ": this processor does not have it");
    }
    std::string known;
    for (const char *name : kLevels) known += std::string(known.empty() ? "" : ", ") + name;
    if (wanted == nullptr || *wanted == '\0') throw py::import_error("puffer-ocean needs x86-64-v2 (SSE4.2)");
    throw py::import_error("PUFFER_ISA=" + std::string(wanted) + ": known are " + known);
}

void add(py::module_ &module, const char *name, int level, const Tables &tables) {
    module.attr(name) = py::capsule(static_cast<const void *>(tables[level]), PUFFER_CAPSULE);
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    const int level = choose_level();
    module.doc() = "Tables of the ocean environments, one capsule each.";
    module.attr("isa") = kLevels[level];
    PUFFER_ENVS(ADD)
}
