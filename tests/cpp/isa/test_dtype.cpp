// Conversions against values computed another way: decode by arithmetic in double, encode by searching the
// nearest representable value, ties to the even code.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "isa/dtype.h"
#include "isa/names.h"
#include "tests/cpp/catch.h"

using namespace trnsim::isa;

namespace {

struct Format {
  Dtype dtype;
  int exponent_bits, mantissa_bits;
  bool ieee;
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
const Format kFormats[] = {{Dtype::kBF16, 8, 7, true},   {Dtype::kF16, 5, 10, true},
                           {Dtype::kF8E4M3, 4, 3, true}, {Dtype::kF8E4M3FN, 4, 3, false},
                           {Dtype::kF8E5M2, 5, 2, true}, {Dtype::kF8E3M4, 3, 4, true}};

double decode(const Format& f, uint32_t code) {
  const bool negative = (code >> (f.bits() - 1)) & 1;
  const int e = (code >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int m = code & ((1 << f.mantissa_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  double v;
  if (f.ieee && e == top) {
    v = m ? std::nan("") : HUGE_VAL;
  } else if (!f.ieee && e == top && m == (1 << f.mantissa_bits) - 1) {
    v = std::nan("");
  } else if (e == 0) {
    v = std::ldexp(m, 1 - f.bias() - f.mantissa_bits);
  } else {
    v = std::ldexp(1.0 + std::ldexp(m, -f.mantissa_bits), e - f.bias());
  }
  return negative ? -v : v;
}

// Codes of the positive finite values are 0..last, in order of value.
uint32_t encode(const Format& f, const std::vector<double>& finite, double v) {
  const uint32_t sign = std::signbit(v) ? 1u << (f.bits() - 1) : 0;
  const double a = std::fabs(v);
  const auto last = static_cast<uint32_t>(finite.size() - 1);
  // What the next code would stand for, were it a number, decides where overflow begins.
  const double next = 2 * finite[last] - finite[last - 1];
  auto it = std::lower_bound(finite.begin(), finite.end(), a);
  if (it == finite.end()) {
    const double middle = (finite[last] + next) / 2;
    return sign | (a < middle || (a == middle && last % 2 == 0) ? last : last + 1);
  }
  const auto hi = static_cast<uint32_t>(it - finite.begin());
  if (*it == a || hi == 0) return sign | hi;
  const double middle = (finite[hi - 1] + finite[hi]) / 2;
  return sign | (a > middle || (a == middle && hi % 2 == 0) ? hi : hi - 1);
}

uint32_t stored(Dtype d, float v) {
  uint32_t out = 0;
  store_from_f32(d, &out, v);
  return out;
}

float float_from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
uint32_t bits_from_float(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

}  // namespace

TEST_CASE("every code of the 8 and 16 bit floats decodes to its value and encodes back") {
  for (const Format& f : kFormats) {
    for (uint32_t code = 0; code < (1u << f.bits()); ++code) {
      const double want = decode(f, code);
      const float got = load_as_f32(f.dtype, &code);
      INFO(dtype_name(f.dtype) << " code " << code);
      if (std::isnan(want)) {
        REQUIRE(std::isnan(got));
        float back = load_as_f32(f.dtype, &code);
        uint32_t again = stored(f.dtype, back);
        REQUIRE(std::isnan(load_as_f32(f.dtype, &again)));
        REQUIRE((again >> (f.bits() - 1)) == (code >> (f.bits() - 1)));
      } else {
        REQUIRE(static_cast<double>(got) == want);
        REQUIRE(std::signbit(got) == std::signbit(want));
        REQUIRE(stored(f.dtype, got) == code);
      }
    }
  }
}

TEST_CASE("narrowing rounds to the nearest value, ties to even, at and around every boundary") {
  std::mt19937 random(1);
  for (const Format& f : kFormats) {
    std::vector<double> finite;
    for (uint32_t code = 0; std::isfinite(decode(f, code)); ++code) finite.push_back(decode(f, code));
    auto check = [&](float v) {
      INFO(dtype_name(f.dtype) << " value " << v << " bits " << bits_from_float(v));
      REQUIRE(stored(f.dtype, v) == encode(f, finite, v));
    };
    for (size_t i = 0; i + 1 < finite.size(); ++i) {
      const float middle = static_cast<float>((finite[i] + finite[i + 1]) / 2);
      for (float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, HUGE_VALF)}) {
        check(v);
        check(-v);
      }
    }
    for (float v : {HUGE_VALF, std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
                    0.0f, 464.0f, std::nextafter(464.0f, 500.0f), 248.0f, std::nextafter(248.0f, 0.0f),
                    65520.0f, std::nextafter(65520.0f, 0.0f), 61440.0f, std::nextafter(61440.0f, 0.0f)}) {
      check(v);
      check(-v);
    }
    for (int i = 0; i < 200000; ++i) {
      const float v = float_from_bits(random());
      if (std::isnan(v)) {
        uint32_t code = stored(f.dtype, v);
        REQUIRE(std::isnan(load_as_f32(f.dtype, &code)));
      } else {
        check(v);
      }
    }
  }
}

TEST_CASE("overflow: infinity for fp8e4, fp8e5 and fp16, NaN for fp8e4fn") {
  CHECK(stored(Dtype::kF8E4M3, 1000.0f) == 0x78);
  CHECK(stored(Dtype::kF8E5M2, 1e6f) == 0x7c);
  CHECK(stored(Dtype::kF16, 70000.0f) == 0x7c00);
  CHECK(stored(Dtype::kF8E4M3FN, 500.0f) == 0x7f);
  CHECK(stored(Dtype::kF8E4M3FN, -HUGE_VALF) == 0xff);
  CHECK(f32_from_fp8(Dtype::kF8E4M3, 0x77) == 240.0f);
  CHECK(f32_from_fp8(Dtype::kF8E4M3FN, 0x7e) == 448.0f);
  CHECK(f32_from_fp8(Dtype::kF8E5M2, 0x7b) == 57344.0f);
}

TEST_CASE("microscaling elements and scales") {
  const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    const float v = f32_from_e2m1(static_cast<uint8_t>(code));
    CHECK(std::fabs(v) == e2m1[code & 7]);
    CHECK(std::signbit(v) == (code >= 8));
    CHECK(e2m1_from_f32(v) == code);
  }
  CHECK(e2m1_from_f32(0.25f) == 0);  // ties go to the even code
  CHECK(e2m1_from_f32(0.75f) == 2);
  CHECK(e2m1_from_f32(1.25f) == 2);
  CHECK(e2m1_from_f32(5.0f) == 6);
  CHECK(e2m1_from_f32(-100.0f) == 15);
  CHECK(f32_from_e8m0(127) == 1.0f);
  CHECK(f32_from_e8m0(0) == 0x1p-127f);
  CHECK(f32_from_e8m0(254) == 0x1p127f);
  CHECK(std::isnan(f32_from_e8m0(255)));
  const uint8_t packed[4] = {0x38, 0xb8, 0x3c, 0x40};
  CHECK(f32_from_packed(Dtype::kF8E4M3FNx4, packed, 0) == 1.0f);
  CHECK(f32_from_packed(Dtype::kF8E4M3FNx4, packed, 1) == -1.0f);
  CHECK(f32_from_packed(Dtype::kF8E5M2x4, packed, 2) == 1.0f);
  CHECK(f32_from_packed(Dtype::kF4E2M1x4, packed, 0) == 0.0f - 0.0f);
  CHECK(f32_from_packed(Dtype::kF4E2M1x4, packed, 1) == 1.5f);
}

TEST_CASE("configurable fp8 decodes and encodes with any bias") {
  for (int mantissa : {2, 3, 4}) {
    for (int bias : {-3, 0, 7, 15, 20}) {
      for (int code = 0; code < 256; ++code) {
        const float v = f32_from_cfp8(static_cast<uint8_t>(code), mantissa, bias);
        INFO("1-" << 7 - mantissa << "-" << mantissa << " bias " << bias << " code " << code);
        REQUIRE(cfp8_from_f32(v, mantissa, bias) == code);
      }
      const float largest = f32_from_cfp8(0x7f, mantissa, bias);
      CHECK(cfp8_from_f32(2 * largest, mantissa, bias) == 0x7f);
      CHECK(cfp8_from_f32(-HUGE_VALF, mantissa, bias) == 0xff);
      const float a = f32_from_cfp8(0x11, mantissa, bias), b = f32_from_cfp8(0x12, mantissa, bias);
      CHECK(cfp8_from_f32((a + b) / 2, mantissa, bias) == 0x12);
    }
  }
}

TEST_CASE("float to integer rounds to nearest even and saturates, NaN becomes 0") {
  struct Range {
    Dtype dtype;
    double low, high;
  };
  const Range ranges[] = {{Dtype::kI8, -128, 127},
                          {Dtype::kU8, 0, 255},
                          {Dtype::kI16, -32768, 32767},
                          {Dtype::kU16, 0, 65535},
                          {Dtype::kI32, -2147483648.0, 2147483647.0},
                          {Dtype::kU32, 0, 4294967295.0}};
  std::mt19937 random(2);
  for (const Range& r : ranges) {
    auto check = [&](float v) {
      const double want =
          std::isnan(v) ? 0 : std::min(std::max(std::nearbyint(static_cast<double>(v)), r.low), r.high);
      int64_t memory = 0;
      store_from_f32(r.dtype, &memory, v);
      INFO(dtype_name(r.dtype) << " value " << v);
      REQUIRE(static_cast<double>(load_as_int(r.dtype, &memory)) == want);
      REQUIRE(load_as_f32(r.dtype, &memory) == static_cast<float>(want));
    };
    for (float v :
         {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, 127.5f, 255.5f, -128.5f, 32767.5f, 65535.5f, 2147483648.0f,
          -2147483648.0f, 4294967040.0f, 4294967296.0f, HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      check(v);
    }
    for (int i = 0; i < 100000; ++i) check(float_from_bits(random()));
  }
  int64_t wide = 0;
  store_from_f32(Dtype::kI64, &wide, 1e30f);
  CHECK(wide == std::numeric_limits<int64_t>::max());
  store_from_f32(Dtype::kI64, &wide, -2.5f);
  CHECK(wide == -2);
  store_from_f32(Dtype::kI64, &wide, 8388609.0f);
  CHECK(wide == 8388609);
}

TEST_CASE("integers wrap when stored from integers, bool stores truth") {
  uint32_t memory = 0;
  store_from_int(Dtype::kI8, &memory, 300);
  CHECK(load_as_int(Dtype::kI8, &memory) == 44);
  store_from_int(Dtype::kU16, &memory, -1);
  CHECK(load_as_int(Dtype::kU16, &memory) == 65535);
  memory = 0;
  store_from_int(Dtype::kBool, &memory, 256);
  CHECK(memory == 1);
  store_from_f32(Dtype::kBool, &memory, 0.25f);
  CHECK(memory == 1);
  store_from_f32(Dtype::kBool, &memory, -0.0f);
  CHECK(memory == 0);
}

TEST_CASE("names go to text and back") {
  for (int i = 0; i < kNumDtypes; ++i) {
    const auto d = static_cast<Dtype>(i);
    CHECK(dtype_from_name(dtype_name(d)) == d);
  }
  for (int i = 0; i < kNumOpcodes; ++i)
    CHECK(opcode_from_name(name(static_cast<Opcode>(i))) == static_cast<Opcode>(i));
  for (int i = 0; i < kNumEngines; ++i)
    CHECK(engine_from_name(name(static_cast<Engine>(i))) == static_cast<Engine>(i));
  for (int i = 0; i < static_cast<int>(AluOp::kCount); ++i) {
    CHECK(alu_op_from_name(name(static_cast<AluOp>(i))) == static_cast<AluOp>(i));
  }
  for (int i = 0; i < static_cast<int>(ActFunc::kCount); ++i) {
    CHECK(act_func_from_name(name(static_cast<ActFunc>(i))) == static_cast<ActFunc>(i));
  }
  CHECK(!dtype_from_name("float33"));
  CHECK(nearest_name("tensor_tensr", opcode_names()) == "tensor_tensor");
  CHECK(nearest_name("qqqqqqq", opcode_names()).empty());
  CHECK(flags_text(kFlagAccumulate | kFlagNegate) == "accumulate|negate");
}
