// tests/onednn.h -- what builds without oneDNN (-DMEGJIT_ONEDNN=OFF) lack.
#pragma once

#include "gtest/gtest.h"

// Skips a test whose products need oneDNN's kernels.
#define NEEDS_ONEDNN() \
    if (!MEGJIT_ONEDNN) \
    GTEST_SKIP() << "without oneDNN products pack no weights and lie on no addend"
