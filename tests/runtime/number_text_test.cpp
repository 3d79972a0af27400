#include "runtime/host/number_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

namespace megjit::runtime { namespace {

std::vector<double> numbers() {
    using Limits = std::numeric_limits<double>;
    std::vector<double> all{0.0,
                            -0.0,
                            1.0,
                            0.1,
                            1.5e300,
                            -2.5e-300,
                            1e20,
                            Limits::max(),
                            Limits::denorm_min(),
                            Limits::infinity(),
                            -Limits::infinity()};
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000; ++i) {
        const double number = std::bit_cast<double>(random());
        if (std::isfinite(number)) all.push_back(number);
    }
    return all;
}

TEST(NumberText, IsPrintfsOfTheCLocale) {
    for (const double number : numbers())
        for (const int digits : {3, 9, 17}) {
            char general[400], fixed[400];
            std::snprintf(general, sizeof general, "%.*g", digits, number);
            std::snprintf(fixed, sizeof fixed, "%.*f", digits, number);
            EXPECT_EQ(number_text(number, digits), general);
            EXPECT_EQ(decimals_text(number, digits), fixed);
        }
}

TEST(NumberText, SeventeenDigitsGiveTheNumberBack) {
    for (const double number : numbers()) EXPECT_EQ(number_in(number_text(number, 17)), number);
    EXPECT_TRUE(std::isnan(number_in(number_text(std::nan(""), 17)).value()));
}

TEST(NumberText, WhatIsNoNumberIsNone) {
    for (const char* text : {"", "x", "1,5", "1.5 ", "0.5s"})
        EXPECT_EQ(number_in(text), std::nullopt);
}

}}  // namespace megjit::runtime
