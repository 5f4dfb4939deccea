// Every environment in one translation unit, so that all of them share one thread pool. Compiled once per x86-64 level
// with PUFFER_SUFFIX set to _v2, _v3 or _v4; bindings.cpp chooses among them at import.
#include <puffer/draw.h>
#include <puffer/env.h>
#include <puffer/vec.h>

#include "env_includes.h"
