// The eight largest of a row, where they are, and taking them out. NaN counts as larger than any number.
// Values are compared in FP32, integers in double, which holds every 32-bit integer.
#include <cmath>
#include <limits>

#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

template <typename T>
void load_values(Work& w, const Operand& o, const std::byte* base, int partition, int64_t first, int n,
                 T* out) {
  if constexpr (sizeof(T) == 4) {
    load_block(o, base, partition, 1, first, n, out);
  } else {
    load_int_block(o, base, partition, 1, first, n, w.i[0]);
    for (int i = 0; i < n; ++i) out[i] = static_cast<double>(w.i[0][i]);
  }
}

template <typename T>
T* buffer(Work& w) {
  if constexpr (sizeof(T) == 4) {
    return w.f[0];
  } else {
    return reinterpret_cast<double*>(w.raw[0]);
  }
}

template <typename T>
bool larger(T a, T b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}
template <typename T>
bool same(T a, T b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

template <typename T>
void max8_row(Context& c, const Prepared& p, const std::byte* s, int partition, T (&top)[8]) {
  std::fill_n(top, 8, -std::numeric_limits<T>::infinity());
  T* x = buffer<T>(c.work);
  for_each_block(1, p.src0->n, [&](int, int, int64_t first, int n) {
    load_values<T>(c.work, *p.src0, s, partition, first, n, x);
    constexpr int kGroup = 16;
    for (int j = 0; j < n; j += kGroup) {
      const int end = std::min(n, j + kGroup);
      // Most groups hold nothing above the eighth value so far.
      int any = 0;
      for (int l = j; l < end; ++l) any |= x[l] <= top[7] ? 0 : 1;
      if (any == 0) continue;
      for (int l = j; l < end; ++l) {
        if (!larger(x[l], top[7])) continue;
        int i = 7;
        for (; i > 0 && larger(x[l], top[i - 1]); --i) top[i] = top[i - 1];
        top[i] = x[l];
      }
    }
  });
}

template <typename T>
void max8(Context& c, const Prepared& p) {
  const std::byte* s = c.at(p, *p.src0);
  std::byte* d = c.at(p, *p.dst);
  for (int partition = 0; partition < p.src0->rows; ++partition) {
    T top[8];
    max8_row(c, p, s, partition, top);
    if (sizeof(T) == 8 && isa::is_integer(p.dst->dtype)) {
      int64_t v[8];
      for (int i = 0; i < 8; ++i) v[i] = static_cast<int64_t>(top[i]);
      store_int_block(*p.dst, d, partition, 1, 0, 8, v);
    } else {
      float v[8];
      for (int i = 0; i < 8; ++i) v[i] = static_cast<float>(top[i]);
      store_block(*p.dst, d, partition, 1, 0, 8, v);
    }
  }
}

// Position of the first occurrence of each of 8 values; equal values take the following occurrences. -1: none
// left.
template <typename T>
void find8(Context& c, const Prepared& p, const std::byte* s, const std::byte* v, int partition,
           int64_t (&found)[8]) {
  T value[8];
  load_values<T>(c.work, *p.src1, v, partition, 0, 8, value);
  int skip[8] = {};
  for (int k = 0; k < 8; ++k) {
    found[k] = -1;
    for (int e = 0; e < k; ++e) skip[k] += same(value[e], value[k]) ? 1 : 0;
  }
  T* x = buffer<T>(c.work);
  int missing = 8;
  for_each_block(1, p.src0->n, [&](int, int, int64_t first, int n) {
    if (missing == 0) return;
    load_values<T>(c.work, *p.src0, s, partition, first, n, x);
    for (int k = 0; k < 8; ++k) {
      if (found[k] >= 0) continue;
      const T w = value[k];
      const bool nan = std::isnan(w);
      int matches = 0;
      for (int j = 0; j < n; ++j) matches += (nan ? x[j] != x[j] : x[j] == w) ? 1 : 0;
      if (matches <= skip[k]) {
        skip[k] -= matches;
        continue;
      }
      int j = 0;
      for (;; ++j) {
        if (same(x[j], w) && skip[k]-- == 0) break;
      }
      found[k] = first + j;
      --missing;
    }
  });
}

template <typename T>
void max_index8(Context& c, const Prepared& p) {
  const std::byte* s = c.at(p, *p.src0);
  const std::byte* v = c.at(p, *p.src1);
  std::byte* d = c.at(p, *p.dst);
  for (int partition = 0; partition < p.src0->rows; ++partition) {
    int64_t found[8];
    find8<T>(c, p, s, v, partition, found);  // -1 stores as all ones
    store_int_block(*p.dst, d, partition, 1, 0, 8, found);
  }
}

template <typename T>
void match_replace8(Context& c, const Prepared& p) {
  constexpr float kZero = 0.0f;
  const Operand &dst = *p.dst, &src = *p.src0;
  const std::byte* s = c.at(p, src);
  const std::byte* v = c.at(p, *p.src1);
  std::byte* d = c.at(p, dst);
  const Column fill = scalar_column(c, p, p.imm0, 0, &kZero);
  for (int partition = 0; partition < src.rows; ++partition) {
    int64_t found[8];
    find8<T>(c, p, s, v, partition, found);
    for_each_block(1, dst.n, [&](int, int, int64_t first, int n) {
      if (same_storage(src.dtype, dst.dtype)) {
        load_raw_block(src, s, partition, 1, first, n, c.work.raw[1]);
        store_raw_block(dst, d, partition, 1, first, n, c.work.raw[1]);
      } else if (isa::is_integer(src.dtype) && isa::is_integer(dst.dtype)) {
        load_int_block(src, s, partition, 1, first, n, c.work.i[0]);
        store_int_block(dst, d, partition, 1, first, n, c.work.i[0]);
      } else {
        load_block(src, s, partition, 1, first, n, c.work.f[0]);
        store_block(dst, d, partition, 1, first, n, c.work.f[0]);
      }
    });
    const float value = fill.data[partition * fill.step];
    for (const int64_t i : found) {
      if (i >= 0) store_block(dst, d, partition, 1, i, 1, &value);
    }
    if (!p.aux->present()) continue;
    // Slots are served from 7 down: among equal values the last slot gets the first match.
    T slot[8];
    load_values<T>(c.work, *p.src1, v, partition, 0, 8, slot);
    int64_t where[8];
    for (int i = 0; i < 8; ++i) {
      int before = 0, nth = 0;
      for (int e = i + 1; e < 8; ++e) before += same(slot[e], slot[i]) ? 1 : 0;
      where[i] = -1;
      for (int e = 0; e < 8; ++e) {
        if (same(slot[e], slot[i]) && nth++ == before) where[i] = found[e];
      }
    }
    store_int_block(*p.aux, c.at(p, *p.aux), partition, 1, 0, 8, where);
  }
}

bool integers(const Prepared& p, bool with_src1) {
  return isa::is_integer(p.src0->dtype) && (!with_src1 || isa::is_integer(p.src1->dtype));
}

}  // namespace

void execute_max8(Context& c, const Prepared& p) {
  integers(p, false) ? max8<double>(c, p) : max8<float>(c, p);
}
void execute_max_index8(Context& c, const Prepared& p) {
  integers(p, true) ? max_index8<double>(c, p) : max_index8<float>(c, p);
}
void execute_match_replace8(Context& c, const Prepared& p) {
  integers(p, true) ? match_replace8<double>(c, p) : match_replace8<float>(c, p);
}

}  // namespace trnsim::exec
