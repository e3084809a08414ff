// The short floats, every code of them, against the definition of each format written with ldexp.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace markbase::base {
namespace {

// sign * 2^(exponent - bias) * 1.mantissa, or 0.mantissa at the lowest exponent; nothing special.
double by_definition(uint32_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = std::ldexp(code & ((1u << mantissa_bits) - 1), -mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1.0 + mantissa, exponent - bias);
  return (code >> (exponent_bits + mantissa_bits)) & 1 ? -magnitude : magnitude;
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

TEST(Half, EveryCodeHasItsValue) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = fp16_to_float(static_cast<uint16_t>(code));
    if ((code & 0x7c00) != 0x7c00) {
      ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(by_definition(code, 5, 10)))) << code;
    } else if ((code & 0x3ff) == 0) {
      ASSERT_EQ(value, code & 0x8000 ? -std::numeric_limits<float>::infinity()
                                     : std::numeric_limits<float>::infinity());
    } else {
      ASSERT_TRUE(std::isnan(value)) << code;
    }
  }
}

TEST(Half, EveryCodeComesBack) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = fp16_to_float(static_cast<uint16_t>(code));
    const uint16_t back = float_to_fp16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(fp16_to_float(back))) << code;
      ASSERT_EQ(back & 0x8000u, code & 0x8000u);
    } else {
      ASSERT_EQ(back, code);
    }
  }
}

// Between each two neighbours: just below the middle goes down, the middle to the even code, just
// above it up. float32 holds these points exactly.
TEST(Half, RoundsToNearestAndTiesToEven) {
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    const double low = by_definition(code, 5, 10);
    // Beyond the largest finite code the next value would be 65536, which is infinity.
    const double high = code + 1 < 0x7c00 ? by_definition(code + 1, 5, 10) : 65536.0;
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      const uint32_t even = code % 2 == 0 ? code : code + 1;
      ASSERT_EQ(float_to_fp16(s * middle), sign | even) << code;
      ASSERT_EQ(float_to_fp16(s * std::nextafter(middle, 0.0f)), sign | code) << code;
      ASSERT_EQ(float_to_fp16(s * std::nextafter(middle, 1e9f)), sign | (code + 1)) << code;
    }
  }
}

TEST(Half, BeyondItsRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_fp16(infinity), 0x7c00);
  EXPECT_EQ(float_to_fp16(-infinity), 0xfc00);
  EXPECT_EQ(float_to_fp16(1e-30f), 0);
  EXPECT_EQ(float_to_fp16(-1e-45f), 0x8000);
  EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(std::nanf("")))));
}

TEST(BFloat16, EveryCodeHasItsValueAndComesBack) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = bf16_to_float(static_cast<uint16_t>(code));
    const uint16_t back = float_to_bf16(value);
    if ((code & 0x7f80) == 0x7f80 && (code & 0x7f) != 0) {
      ASSERT_TRUE(std::isnan(value) && std::isnan(bf16_to_float(back)));
      continue;
    }
    ASSERT_EQ(back, code);
    if ((code & 0x7f80) == 0x7f80) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(std::signbit(value), code >= 0x8000);
    } else {
      ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(by_definition(code, 8, 7)))) << code;
    }
  }
}

TEST(BFloat16, RoundsToNearestAndTiesToEven) {
  for (uint32_t code = 0; code < 0x7f80; ++code) {
    const uint32_t middle = (code << 16) | 0x8000u;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const auto rounded = [&](uint32_t bits) {
        return float_to_bf16(std::bit_cast<float>(bits | (sign << 16)));
      };
      ASSERT_EQ(rounded(middle), sign | (code + code % 2)) << code;
      ASSERT_EQ(rounded(middle - 1), sign | code) << code;
      ASSERT_EQ(rounded(middle + 1), sign | (code + 1)) << code;
    }
  }
  // A NaN whose payload is all in the bits that are cut stays a NaN.
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0xffffffffu)))));
}

TEST(E4M3, EveryCodeHasItsValue) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      ASSERT_TRUE(std::isnan(value));
    } else {
      ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(by_definition(code, 4, 3)))) << code;
    }
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
}

TEST(E8M0, EveryCodeIsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    ASSERT_EQ(e8m0_to_float(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

}  // namespace
}  // namespace markbase::base
