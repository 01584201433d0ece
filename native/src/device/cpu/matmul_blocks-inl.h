// How a block of a quantised panel becomes bytes and scales, what its integer sums add to a row, and how rows
// reach the output: shared by the products of matmul_tiles-inl.h and of matmul_amx.cc. The including file
// defines `struct Simd` as described in matmul_tiles-inl.h; nothing here may have external linkage.
#pragma once
#include <cstring>

#include "device/cpu/matmul_kernels.h"
#include "device/cpu/pack_layout.h"
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

using Float = Simd::Float;
using Int = Simd::Int;
using Word = Simd::Word;

inline Word load_words(const void* p) { return *static_cast<const Word*>(p); }
inline Float load_floats(const void* p) { return *static_cast<const Float*>(p); }
inline void store_floats(float* p, Float v) { *reinterpret_cast<Float*>(p) = v; }

/// Where `finish` will write; long rows lie far apart.
template <int T, int kRows>
inline __attribute__((always_inline)) void prefetch_outputs(const TileProduct& p) {
#pragma GCC unroll 16
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 2
    for (int r = 0; r < kRows; r += 16) __builtin_prefetch(p.out + t * p.ldo + r, 1);
  }
}

/// Adds a tile's results, [tokens][panel rows], to the output.
__attribute__((noinline)) void finish(const TileProduct& p, const float* c, int tokens, int panel_rows) {
  for (int t = 0; t < tokens; t++, c += panel_rows) {
    float* out = p.out + t * p.ldo;
    int r = 0;
    for (; r + kLanes <= p.rows; r += kLanes) {
      Float v = load_floats(c + r);
      if (p.scale) v *= load_floats(p.scale + r);
      if (p.bias) v += load_floats(p.bias + r);
      if (p.accumulate) v += load_floats(out + r);
      store_floats(out + r, v);
    }
    for (; r < p.rows; r++) {
      float v = c[r];
      if (p.scale) v *= p.scale[r];
      if (p.bias) v += p.bias[r];
      if (p.accumulate) v += out[r];
      out[r] = v;
    }
  }
}

/// Ors bit `bit` and above of the bytes of the 8 vectors from their codes at p, of `size` bits: 1 or 2. With
/// `split`, bit `bit` + size of the last four, whose codes become so much larger without a shift of their
/// own.
template <int size, int bit, bool split>
inline __attribute__((always_inline)) void add_bits(const uint8_t* p, Word w[8]) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    const Word v = load_words(p + (size == 1 ? 0 : 64 * (i / 2 % 2)));
    const int to = split && i >= 4 ? bit + size : bit, at = size == 1 ? bit_place(i) : pair_place(i);
    w[i] |= (at < to ? v << (to - at) : v >> (at - to)) & ((size == 1 ? 0x01010101u : 0x03030303u) << to);
  }
}

/// 8 vectors of codes of three bits. With `loose`, codes are the low four bits, of which the highest is zero,
/// below three that mean nothing and a zero.
template <bool loose>
inline __attribute__((always_inline)) void load_triples(const uint8_t* p, Word w[8]) {
  constexpr uint32_t kCodes = 0x77777777u, kCode = loose ? kCodes : 0x07070707u;
  Word last{};
#pragma GCC unroll 3
  for (int h = 2; h >= 0; h--) {
    const Word v = load_words(p + 64 * h);
    w[2 * h] = v & kCode;
    w[2 * h + 1] = loose ? w[2 * h] >> 4 : v >> 4 & kCode;
    last = Simd::average(v & ~kCodes, last);
  }
  w[6] = loose ? last : last & kCode;
  w[7] = loose ? last >> 4 : last >> 4 & kCode;
}

/// A vector whose bytes repeat those of byte(i), i < 16.
template <class B>
inline __attribute__((always_inline)) Word repeat_bytes(B byte) {
  Word w{};
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++) {
    const int at = 4 * (i % 4);
    w[i] = byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
  }
  return w;
}

/// The bytes of a block of Scales::SuperShifts, 16 bits each.
inline Word load_shifts(const uint8_t* group, int g, int first) {
  return Simd::byte_pairs(group + 64 + 32 * g + 2 * first);
}

/// Adds their shifts below the codes of the block's 8 vectors.
inline __attribute__((always_inline)) void add_shifts(Word shifts, Word w[8]) {
  const Word bits = shifts >> 5 & 0x00030003u;
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const Word of_half =
        Simd::lookup(bits, repeat_bytes([j](int i) { return static_cast<uint32_t>((i & 12) + (j & 2)); }));
    const Word shift =
        Simd::lookup(repeat_bytes([j](int i) { return static_cast<uint32_t>(i >> (j & 1) & 1); }), of_half);
    w[2 * j] |= shift;
    w[2 * j + 1] |= shift;
  }
}

/// Lanes `first`.. of the 8 vectors of `block`, which is block g of `group`. With `split`, of short codes,
/// the last four are 2^code_bits times as large as the first, which are half their codes where these are one
/// bit and without shifts where they have such.
template <PanelLayout layout, bool split>
inline __attribute__((always_inline)) void load_block(const uint8_t* group, const uint8_t* block, int g,
                                                      int first, Word book, Word w[8]) {
  constexpr int bits = layout.code_bits;
  const uint8_t* p = block + 4 * first;
  if constexpr (bits == 8) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
      w[i] = load_words(p + 64 * i);
      if (Simd::kSignedBytes) w[i] ^= 0x80808080u;
    }
    return;
  }
  if constexpr (bits == 3) load_triples<layout.codebook>(p, w);
#pragma GCC unroll 4
  for (int i = 0; i < 4 && bits != 3; i++) {
    if constexpr (bits >= 4) {
      const Word v = load_words(p + 64 * i);
      w[i] = v & 0x0f0f0f0fu;
      w[i + 4] = v >> 4 & 0x0f0f0f0fu;
    } else {
      w[i] = w[i + 4] = Word{};
    }
  }
  constexpr bool kShifts = layout.scales == Scales::SuperShifts && !split;
  if constexpr (bits == 5) add_bits<1, 4, false>(p + 256, w);
  if constexpr (bits == 6) add_bits<2, 4, false>(p + 256, w);
  if constexpr (bits == 2) add_bits<2, kShifts ? 2 : 0, split>(p, w);
  if constexpr (bits == 1) add_bits<1, split ? 0 : 1, split>(p, w);
  if constexpr (kShifts) add_shifts(load_shifts(group, g, first), w);
  if constexpr (layout.codebook) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) w[i] = Simd::lookup(book, w[i]);
  }
}

/// What the scales of a superblock are multiples of.
struct GroupScales {
  Float d, other;
};

template <PanelLayout layout>
inline __attribute__((always_inline)) GroupScales load_group_scales(const uint8_t* group, int first) {
  GroupScales s{};
  constexpr Scales kScales = layout.scales;
  if constexpr (kScales < Scales::Wide) return s;
  s.d = Simd::half(group + 2 * first);
  if constexpr (kScales == Scales::Super) s.other = -Simd::half(group + 32 + 2 * first);
  // High nibbles stay 16 times as large; the sums that they meet are negative.
  if constexpr (kScales == Scales::SuperHalvesMinimum)
    s.other = Simd::half(group + 32 + 2 * first) * Simd::splat(0.0625f);
  if constexpr (kScales == Scales::SuperShifted) s.other = s.d * Simd::splat(0.125f);
  if constexpr (kScales == Scales::SuperOddHalves) s.other = s.d + s.d;
  return s;
}

/// Of block g, without d where PanelLayout::d_last: `scale` of the whole or of the first half, `second` of
/// the second half; `minimum` and `second_minimum`, what the sums of the inputs count.
struct BlockScales {
  Float scale, second, minimum, second_minimum;
};

template <PanelLayout layout>
inline __attribute__((always_inline)) BlockScales load_scales(const uint8_t* group, const GroupScales& of,
                                                              int g, int first) {
  BlockScales s{};
  constexpr Scales kScales = layout.scales;
  const auto bytes = [](const uint8_t* p) { return __builtin_convertvector(Simd::byte_ints(p), Float); };
  if constexpr (kScales == Scales::Brain) {
    s.scale = (Float)load_bf16(group + 32 * g + 2 * first);
  } else if constexpr (kScales == Scales::E4m3) {
    s.scale = Simd::half_of_bytes(group + 32 * g + first);
    s.second = Simd::half_of_bytes(group + 32 * g + 16 + first);
  } else if constexpr (kScales == Scales::FloatZero) {
    s.scale = load_floats(group + 64 * g + 4 * first);
    s.minimum = -(s.scale * bytes(group + 256 + 16 * g + first));
  } else if constexpr (kScales == Scales::Half || kScales == Scales::HalfMinimum) {
    s.scale = Simd::half(group + 32 * g + 2 * first);
    if (layout.minimum()) s.minimum = Simd::half(group + 64 + 32 * g + 2 * first);
  } else if constexpr (kScales == Scales::SuperOne || kScales == Scales::Wide) {
    s.scale = of.d;
  } else if constexpr (kScales == Scales::SuperPlain) {
    s.scale = of.d * (Float)load_int8(group + 64 + 16 * g + first);
  } else if constexpr (kScales == Scales::SuperShifted) {
    const Float shift = (Float)load_int8(group + 64 + 16 * g + first);
    s.scale = of.d * (Float)((Word)shift & 0x7fffffffu);
    s.minimum = of.other * shift;
  } else if constexpr (kScales == Scales::SuperOddHalves) {
    const Int n = Simd::byte_ints(group + 64 + 16 * g + first);
    s.scale = Simd::fma(__builtin_convertvector(n & 15, Float), of.other, of.d);
    s.second = Simd::fma(__builtin_convertvector(n >> 4, Float), of.other, of.d);
  } else if constexpr (kScales == Scales::SuperShifts) {
    const Int both = (Int)load_shifts(group, g, first);
    s.scale = __builtin_convertvector(both & 31, Float);
    s.second = __builtin_convertvector(both >> 16 & 31, Float);
  } else if constexpr (kScales == Scales::SuperHalves) {
    s.scale = of.d * (Float)load_int8(group + 64 + 32 * g + first);
    s.second = of.d * (Float)load_int8(group + 80 + 32 * g + first);
  } else if constexpr (kScales == Scales::SuperHalvesMinimum) {
    const Int a = Simd::byte_ints(group + 64 + 32 * g + first),
              b = Simd::byte_ints(group + 80 + 32 * g + first);
    s.scale = of.d * __builtin_convertvector(a & 15, Float);
    s.second = of.d * __builtin_convertvector(b & 15, Float);
    s.minimum = of.other * __builtin_convertvector(a & 240, Float);
    s.second_minimum = of.other * __builtin_convertvector(b & 240, Float);
  } else {
    s.scale = of.d * bytes(group + 64 + 16 * g + first);
    s.minimum = of.other * bytes(group + 192 + 16 * g + first);
  }
  return s;
}

/// gcc loads a number that it will spread into a general register first, which costs few tokens instructions
/// and saves many tokens vector registers.
template <bool few>
inline __attribute__((always_inline)) Float spread(const float* p) {
  return few ? Simd::splat_at(p) : Simd::splat(*p);
}
template <bool few>
inline __attribute__((always_inline)) Int spread_int(const int32_t* p) {
  return few ? Simd::splat_int_at(p) : Simd::splat_int(p);
}

/// Adds the sums of a block to one token's rows: `low` and, of the second half, `high` are integers without
/// offset. `x_scale`, `x_sum` and `start` are of the block and the token.
template <PanelLayout layout, bool few>
inline __attribute__((always_inline)) Float add_sums(Float row, Int low, Int high, const BlockScales& s,
                                                     const float* x_scale, const float* x_sum,
                                                     const int32_t* start) {
  constexpr bool kGrouped = layout.grouped();
  const Float first = __builtin_convertvector(low, Float);
  if constexpr (layout.halves()) {
    const Float second = __builtin_convertvector(high, Float);
    if constexpr (kGrouped) {
      row = Simd::fma(second, s.second, row);
      row = Simd::fma(first, s.scale, row);
    } else {
      row = Simd::fma(Simd::fma(second, s.second, first * s.scale), spread<few>(x_scale), row);
    }
  } else {
    const Float scale = kGrouped          ? s.scale
                        : layout.d_last() ? spread<few>(x_scale)
                                          : s.scale * spread<few>(x_scale);
    row = Simd::fma(first, scale, row);
  }
  if constexpr (layout.minimum() && layout.halves()) {
    const auto sum = [&](int which) {
      return __builtin_convertvector(spread_int<few>(start + which), Float);
    };
    row = Simd::fma(s.minimum, sum(1), row);
    row = Simd::fma(s.second_minimum, sum(2), row);
  } else if constexpr (layout.minimum()) {
    row = Simd::fma(s.minimum, spread<few>(x_sum), row);
  }
  return row;
}

}  // namespace
}  // namespace vllm::cpu
