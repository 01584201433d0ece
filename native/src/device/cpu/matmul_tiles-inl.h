// The products and the activation tiles, written once over the vectors of an instruction set. A
// matmul_<isa>.cc file defines `struct Simd` in vllm::cpu and an anonymous namespace and then includes this
// file; nothing here may have external linkage, for each copy is compiled with other instructions.
//
// Simd, of simd.h's kLanes: kRegisters; Float, Int, Word: vectors of kLanes f32, int32, uint32, any
// alignment;
//   fma(a, b, c) = a * b + c; splat(float), splat_int(const int32_t*);
//   half(p): kLanes f16 as f32; byte_ints(p): kLanes uint8 as Int;
//   half_of_bytes(p): kLanes bytes as f32, each the eight bits after the sign of an f16;
//   lookup(book, w): the bytes of w, all below 16, as indices into 16 bytes, of which table(p) makes book;
//   e4m3(p): kLanes E4M3 as f32 * 2^-8;
//   max_lanes(v), sum_lanes(v); store_bytes(p, v): the lanes, which fit int8, as kLanes bytes;
//   dots<max, n>(w, x, start) = start + sum of n vectors of bytes (unsigned, at most `max`) times 4 int8 of x
//   each; kSignedBytes: dots<255, n> takes signed bytes instead; kTurns: so many tokens take turns in dots;
//   kBf16Dots: bf16_dot(c, w, x) = c + both products of the bf16 pairs of w and x;
//   kTokenPairs: two tokens at a time, their inputs laid out as in prepare_int8: pair_dots<n>(w, x, first,
//   second) adds to the sums of two tokens what dots would, after pair_rows(w) of the 8 vectors of a block;
//   kShiftTables: shift_tables(x, tables) makes for each half of 32 int8 the table {0, 2a, 2b, 2a + 2b} -
//   9 (a + b), a being the sum of the half's first 8 and b that of its last; pick(table, w): of a table what
//   the low two bits of w choose.
#include <cstring>

#include "device/cpu/matmul_kernels.h"
#include "device/cpu/pack_layout.h"
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

using Float = Simd::Float;
using Int = Simd::Int;
using Word = Simd::Word;

inline Word load_words(const uint8_t* p) { return *reinterpret_cast<const Word*>(p); }
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

/// Ors bit `bit` of the bytes of the 8 vectors from h, which has it for vector i in bit i.
template <int bit>
inline __attribute__((always_inline)) void add_bits(Word h, Word w[8]) {
  constexpr uint32_t kMask = 0x01010101u << bit;
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) w[i] |= (i < bit ? h << (bit - i) : h >> (i - bit)) & kMask;
}

/// The same with two bits of vector i from bits 2 (i % 4) and 2 (i % 4) + 1 of a (i < 4) or b.
template <int bit>
inline __attribute__((always_inline)) void add_bit_pairs(Word a, Word b, Word w[8]) {
  constexpr uint32_t kMask = 0x03030303u << bit;
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    const Word v = i < 4 ? a : b;
    const int at = 2 * (i % 4);
    w[i] |= (at < bit ? v << (bit - at) : v >> (at - bit)) & kMask;
  }
}

/// 8 vectors of codes of three bits.
inline __attribute__((always_inline)) void load_triples(const uint8_t* p, Word w[8]) {
  constexpr uint32_t kThree = 0x07070707u, kTwo = 0x03030303u, kHigh = 0x04040404u;
  const Word a = load_words(p), b = load_words(p + 64), c = load_words(p + 128);
  w[0] = a & kThree;
  w[1] = a >> 3 & kThree;
  w[2] = b & kThree;
  w[3] = b >> 3 & kThree;
  w[4] = c & kThree;
  w[5] = c >> 3 & kThree;
  w[6] = (a >> 6 & kTwo) | (c >> 4 & kHigh);
  w[7] = (b >> 6 & kTwo) | (c >> 5 & kHigh);
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

/// Adds the shifts of a block, in four bits of each row, below the codes of its 8 vectors; see
/// Scales::SuperOddShifts.
inline __attribute__((always_inline)) void add_shifts(Word shifts, Word w[8]) {
  const Word bits =
      Simd::lookup(shifts & 15, repeat_bytes([](int i) { return static_cast<uint32_t>(i & 12); }));
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const Word shift =
        Simd::lookup(repeat_bytes([j](int i) { return static_cast<uint32_t>(i >> j & 1); }), bits);
    w[2 * j] |= shift;
    w[2 * j + 1] |= shift;
  }
}

/// Lanes `first`.. of the 8 vectors of `block`, which is block g of `group`. Without its shifts, codes are
/// twice as large.
template <PanelLayout layout, bool with_shifts>
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
  if constexpr (bits == 3) load_triples(p, w);
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
  if constexpr (bits == 5) add_bits<4>(load_words(p + 256), w);
  if constexpr (bits == 6) add_bit_pairs<4>(load_words(p + 256), load_words(p + 320), w);
  constexpr bool kShifts = layout.scales == Scales::SuperOddShifts;
  if constexpr (bits == 2)
    add_bit_pairs<!kShifts ? 0 : with_shifts ? 2 : 3>(load_words(p), load_words(p + 64), w);
  if constexpr (kShifts && with_shifts) add_shifts(load_words(group + 192 + 4 * first) >> 4 * g, w);
  if constexpr (bits == 1) add_bits<1>(load_words(p), w);
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
  if constexpr (kScales >= Scales::SuperOdd) s.other = s.d + s.d;
  return s;
}

/// Of block g: `scale` of the whole or of the first half, `second` of the second half; `minimum` and
/// `second_minimum`, what the sums of the inputs count.
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
  } else if constexpr (kScales == Scales::SuperOdd) {
    const Int n = (Int)(load_words(group + 64 + 4 * first) >> 4 * g & 15);
    s.scale = Simd::fma(__builtin_convertvector(n, Float), of.other, of.d);
  } else if constexpr (kScales == Scales::SuperOddHalves || kScales == Scales::SuperOddShifts) {
    const Int n = Simd::byte_ints(group + 64 + 16 * g + first);
    s.scale = Simd::fma(__builtin_convertvector(n & 15, Float), of.other, of.d);
    s.second = Simd::fma(__builtin_convertvector(n >> 4, Float), of.other, of.d);
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

/// Integer sums of a block are exact, and the float operations of one (row, token) run block by block, in the
/// same order in every tile shape: that makes a result independent of the shape.
template <PanelLayout layout, int T, int kPrefetch, class S = Simd>
__attribute__((noinline)) void quantised_product(const TileProduct& product) {
  constexpr bool kGrouped = layout.grouped();  // Int8x256: the activation scale multiplies once a group
  constexpr int kGroup = layout.group_inputs / 32;
  constexpr int kParts = 16 / kLanes;
  // With many tokens, the codes of PanelLayout::odd become bytes of an offset that is a power of two. With
  // few, IQ1_M's shifts and offset are looked up in tables of the inputs' sums instead of joining the codes.
  constexpr bool kWhole = layout.odd != 0 && T > 2;
  constexpr bool kTables = layout.scales == Scales::SuperOddShifts && S::kShiftTables && T <= 2;
  constexpr int kOdd = kWhole || kTables ? 0 : layout.odd;
  constexpr int kOffsetBits = layout.offset_bits + (!kWhole ? 0 : layout.odd > 0 ? 2 : 1);
  constexpr int kPlus = kWhole ? (1 << kOffsetBits) - (2 << layout.offset_bits) - layout.odd : 0;
  constexpr int kMax = kWhole ? 2 * layout.largest + kPlus : kTables ? 16 : layout.largest;
  constexpr bool kSigned = kMax > 127 && Simd::kSignedBytes;
  constexpr bool kOffset = kOffsetBits >= 0 && kOdd == 0 && !kSigned && !kTables;
  // Chains of dots, for their latency: several for a token where there are few tokens, else tokens in turn.
  constexpr int kChains = layout.halves() || T <= 2 ? 2 : 1;
  constexpr bool kPairs = S::kTokenPairs && T > 1;
  constexpr int U = kPairs ? 2 : T <= 2 ? 1 : layout.halves() ? (Simd::kTurns + 1) / 2 : Simd::kTurns;
  constexpr int kStep = U > 1 ? 1 : 8 / kChains;
  Word book{};
  if constexpr (layout.codebook) book = Simd::table(product.codebook->bytes) ^ (kSigned ? 0x80808080u : 0u);
  Float acc[kParts][T];
  alignas(64) float total[T * 16];  // f32 sums; with kGrouped of the groups so far
#pragma GCC unroll 64
  for (int i = 0; i < kParts * T; i++) acc[i / T][i % T] = Float{};
  if constexpr (kGrouped) {
#pragma GCC unroll 64
    for (int i = 0; i < T * kParts; i++) store_floats(total + i * kLanes, Float{});
  }

  prefetch_outputs<T, 16>(product);
  const int64_t blocks = product.cols / 32;
  const uint8_t* group = product.panel;
  const int8_t* x = static_cast<const int8_t*>(product.tile.x);
  const float* x_scale = product.tile.scale;
  const float* x_sum = product.tile.sum;
  const int32_t* start = product.tile.start;
  const uint8_t* block = group + layout.data;
  GroupScales scales[kParts];
  int g = 0;
  for (int64_t b = 0; b < blocks; b++, x += 32 * T, x_scale += T, x_sum += T, start += 3 * T) {
    const uint8_t* ahead = block + kPrefetch;
    Word tables[kTables ? T : 1][2];
    if constexpr (kTables) {
#pragma GCC unroll 2
      for (int t = 0; t < T; t++) S::shift_tables(x + 32 * t, tables[t]);
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts; part++) {
      Word w[8];
      load_block<layout, !kTables>(group, block, g, part * kLanes, book, w);
#pragma GCC unroll 8
      for (int i = 0; i < 8 && kWhole; i++) w[i] = w[i] + w[i] + 0x01010101u * kPlus;
      if constexpr (kPairs) S::pair_rows(w);
      if (g == 0) scales[part] = load_group_scales<layout>(group, part * kLanes);
      const auto [scale, second, minimum, second_minimum] =
          load_scales<layout>(group, scales[part], g, part * kLanes);
#pragma GCC unroll 16
      for (int first = 0; first < T; first += U) {
        if (kPrefetch > 0 && part == 0) {
          constexpr int kLines = layout.block_bytes / 64 + 1;
#pragma GCC unroll 8
          for (int line = first * kLines / T; line < (first + U) * kLines / T; line++)
            __builtin_prefetch(ahead + 64 * line);
        }
        const auto begin = [&](int t, int which) {
          return kOffset ? Simd::splat_int(start + 3 * t + which) << (kOffset ? kOffsetBits : 0) : Int{};
        };
        Int low[U], high[U];  // of the halves; without halves low is the sum of the block
#pragma GCC unroll 4
        for (int u = 0; u < U; u++) {
          if constexpr (kTables) {
            const Word shifts = load_words(group + 192 + 4 * part * kLanes) >> 4 * g;
            low[u] = S::pick(tables[first + u][0], shifts);
            high[u] = S::pick(tables[first + u][1], shifts >> 2);
          } else {
            low[u] = begin(first + u, layout.halves() ? 1 : 0);
            high[u] = layout.halves() ? begin(first + u, 2) : Int{};
          }
        }
        if constexpr (kPairs) {
          constexpr int n = 8 / kChains;
          S::template pair_dots<n>(w, x + 32 * first, low[0], low[1]);
          if constexpr (n < 8) S::template pair_dots<n>(w + n, x + 32 * first + 8 * n, high[0], high[1]);
        } else {
#pragma GCC unroll 8
          for (int i = 0; i < 8; i += kStep) {
#pragma GCC unroll 4
            for (int u = 0; u < U; u++) {
              Int& sum = i >= 4 && kChains > 1 ? high[u] : low[u];
              sum = Simd::dots<kMax, kStep>(w + i, x + 32 * (first + u) + 4 * i, sum);
            }
          }
        }
#pragma GCC unroll 4
        for (int u = 0; u < U; u++) {
          const int t = first + u;
          if constexpr (kOdd != 0) {
            const auto value_sum = [&](Int sum, int which) {
              const int32_t rest = ((2 << kOffsetBits) + kOdd) * start[3 * t + which];
              return sum + sum + Simd::splat_int(&rest);
            };
            if (kChains > 1 && !layout.halves()) low[u] += high[u], high[u] = Int{};
            low[u] = value_sum(low[u], layout.halves() ? 1 : 0);
            if (layout.halves()) high[u] = value_sum(high[u], 2);
          }
          Float& row = acc[part][t];
          if constexpr (layout.halves()) {
            const Float first_half = __builtin_convertvector(low[u], Float);
            const Float second_half = __builtin_convertvector(high[u], Float);
            if constexpr (kGrouped) {
              row = Simd::fma(second_half, second, row);
              row = Simd::fma(first_half, scale, row);
            } else {
              row =
                  Simd::fma(Simd::fma(second_half, second, first_half * scale), Simd::splat(x_scale[t]), row);
            }
          } else {
            const Int sum = kChains > 1 ? low[u] + high[u] : low[u];
            const Float s = kGrouped ? scale : scale * Simd::splat(x_scale[t]);
            row = Simd::fma(__builtin_convertvector(sum, Float), s, row);
          }
          if constexpr (layout.minimum() && layout.halves()) {
            const auto sum = [&](int which) {
              return __builtin_convertvector(Simd::splat_int(start + 3 * t + which), Float);
            };
            row = Simd::fma(minimum, sum(1), row);
            row = Simd::fma(second_minimum, sum(2), row);
          } else if constexpr (layout.minimum()) {
            row = Simd::fma(minimum, Simd::splat(x_sum[t]), row);
          }
        }
      }
    }
    block += layout.block_bytes;
    if (++g < kGroup) continue;
    g = 0;
    group += layout.group_bytes;
    block = group + layout.data;
    if constexpr (kGrouped) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; part++) {
#pragma GCC unroll 16
        for (int t = 0; t < T; t++) {
          float* sum = total + 16 * t + part * kLanes;
          store_floats(sum, Simd::fma(acc[part][t], Simd::splat(x_scale[t]), load_floats(sum)));
          acc[part][t] = Float{};
        }
      }
    }
  }
  if constexpr (!kGrouped) {
#pragma GCC unroll 4
    for (int part = 0; part < kParts; part++) {
#pragma GCC unroll 16
      for (int t = 0; t < T; t++) store_floats(total + 16 * t + part * kLanes, acc[part][t]);
    }
  }
  finish(product, total, T, 16);
}

/// One pass: adds to c V vectors of rows from row `first` times U tokens from `token`, over `cols` inputs in
/// rising order.
template <Format f, int T, int V, int U, class S = Simd>
inline __attribute__((always_inline)) void float_pass(const uint8_t* panel, int64_t cols, const void* x,
                                                      int first, int token, float* c) {
  Float acc[V][U];
#pragma GCC unroll 64
  for (int i = 0; i < V * U; i++)
    acc[i / U][i % U] = load_floats(c + (token + i % U) * 32 + first + i / U * kLanes);
  if constexpr (f == Format::BF16 && S::kBf16Dots) {
    const uint8_t* w = panel + 4 * first;
    const int32_t* pairs = static_cast<const int32_t*>(x) + token;
    for (int64_t k = 0; k < cols; k += 2, w += 128, pairs += T) {
      Word row[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) row[v] = load_words(w + 4 * kLanes * v);
#pragma GCC unroll 16
      for (int t = 0; t < U; t++) {
        const Int pair = Simd::splat_int(pairs + t);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[v][t] = S::bf16_dot(acc[v][t], row[v], pair);
      }
    }
  } else if constexpr (f == Format::BF16) {
    const uint8_t* w = panel + 4 * first;
    const float* values = static_cast<const float*>(x) + token;
    for (int64_t k = 0; k < cols; k += 2, w += 128, values += 2 * T) {
      Float even[V], odd[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        const Word both = load_words(w + 4 * kLanes * v);
        even[v] = (Float)(both << 16);
        odd[v] = (Float)(both & 0xffff0000u);
      }
#pragma GCC unroll 16
      for (int t = 0; t < U; t++) {
        const Float a = Simd::splat(values[t]);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[v][t] = Simd::fma(even[v], a, acc[v][t]);
      }
#pragma GCC unroll 16
      for (int t = 0; t < U; t++) {
        const Float b = Simd::splat(values[T + t]);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[v][t] = Simd::fma(odd[v], b, acc[v][t]);
      }
    }
  } else {
    constexpr int kSize = f == Format::F32 ? 4 : f == Format::F16 ? 2 : 1;
    const uint8_t* w = panel + kSize * first;
    const float* values = static_cast<const float*>(x) + token;
    for (int64_t k = 0; k < cols; k++, w += 32 * kSize, values += T) {
      Float row[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        const uint8_t* p = w + kSize * kLanes * v;
        row[v] = f == Format::F32 ? load_floats(p) : f == Format::F16 ? Simd::half(p) : Simd::e4m3(p);
      }
#pragma GCC unroll 16
      for (int t = 0; t < U; t++) {
        const Float a = Simd::splat(values[t]);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[v][t] = Simd::fma(row[v], a, acc[v][t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) {
#pragma GCC unroll 16
    for (int t = 0; t < U; t++) store_floats(c + (token + t) * 32 + first + v * kLanes, acc[v][t]);
  }
}

/// The accumulators of a pass fit the registers, so that a tile may take several passes. Those share a
/// stretch of the inputs that stays in the first-level cache.
template <Format f, int T>
__attribute__((noinline)) void float_product(const TileProduct& product) {
  constexpr bool kWide = Simd::kRegisters >= 32;
  constexpr int kPanelVectors = 32 / kLanes;
  constexpr int V = T <= 2 ? kPanelVectors : kWide && T == 4 && kPanelVectors > 4 ? 4 : 2;
  constexpr int U = kWide || T <= 4 ? T : T == 8 || f == Format::BF16 ? 4 : 6;
  constexpr bool kScaled = f == Format::F8_E4M3_64;  // the sums of a stretch have a scale of their own
  constexpr bool kOnePass = V * kLanes == 32 && U == T && !kScaled;
  constexpr PanelLayout layout = panel_layout(f);
  const int64_t stretch = kOnePass ? product.cols : 64;
  prefetch_outputs<T, 32>(product);
  alignas(64) float c[T * 32] = {};
  alignas(64) float total[kScaled ? T * 32 : 1] = {};
  const uint8_t* panel = product.panel;
  const uint8_t* x = static_cast<const uint8_t*>(product.tile.x);
  for (int64_t k = 0; k < product.cols; k += stretch) {
    const int64_t cols = k + stretch < product.cols ? stretch : product.cols - k;
    for (int first = 0; first < 32; first += V * kLanes) {
      for (int token = 0; token < T; token += U)
        float_pass<f, T, V, U>(panel + layout.data, cols, x, first, token, c);
    }
    if constexpr (kScaled) {
      for (int i = 0; i < T * 32; i += kLanes) {
        store_floats(total + i, Simd::fma(load_floats(c + i), load_floats(panel + 4 * (i % 32)),
                                          load_floats(total + i)));
        store_floats(c + i, Float{});
      }
    }
    panel += stretch / layout.group_inputs * layout.group_bytes;
    x += stretch * T * (f == Format::BF16 && Simd::kBf16Dots ? 2 : 4);
  }
  finish(product, kScaled ? total : c, T, 32);
}

uint32_t float_bits(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return bits;
}

void prepare_f32(const float* x, int64_t ldx, int tokens, int64_t cols, const ActivationTile& tile) {
  float* out = static_cast<float*>(tile.x);
  for (int t = 0; t < tokens; t++) {
    const float* row = x + t * ldx;
    for (int64_t k = 0; k < cols; k++) out[k * tokens + t] = row[k];
    if (cols % 2) out[cols * tokens + t] = 0;
  }
}

/// Nearest even; a NaN stays one.
inline uint32_t bf16_bits(float v) {
  const uint32_t bits = float_bits(v);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded;
}

void prepare_bf16(const float* x, int64_t ldx, int tokens, int64_t cols, const ActivationTile& tile) {
  uint32_t* out = static_cast<uint32_t*>(tile.x);
  const int64_t pairs = cols / 2;
  for (int t = 0; t < tokens; t++) {
    const float* row = x + t * ldx;
    for (int64_t k0 = 0; k0 < pairs; k0 += 16) {
      uint32_t pair[16];
      if (k0 + 16 <= pairs) {
        for (int i = 0; i < 16; i++) {
          pair[i] = bf16_bits(row[2 * (k0 + i)]) | bf16_bits(row[2 * (k0 + i) + 1]) << 16;
        }
        for (int i = 0; i < 16; i++) out[(k0 + i) * tokens + t] = pair[i];
      } else {
        for (int64_t k = k0; k < pairs; k++)
          out[k * tokens + t] = bf16_bits(row[2 * k]) | bf16_bits(row[2 * k + 1]) << 16;
      }
    }
    if (cols % 2) out[pairs * tokens + t] = bf16_bits(row[cols - 1]);
  }
}

/// 127 / `top` overflows below this; such values count as zero.
constexpr float kSmallestTop = 1e-36f;

/// The largest magnitude of 32 * n values, as the bits of a float: those are in order, infinity and NaN above
/// all numbers.
template <int n>
inline int32_t top_magnitude(const float* x) {
  Int top{};
#pragma GCC unroll 8
  for (int k = 0; k < 32 * n; k += kLanes) {
    const Int magnitude = (Int)load_floats(x + k) & 0x7fffffff;
    top = magnitude > top ? magnitude : top;
  }
  return Simd::max_lanes(top);
}

/// 16 values times `inverse`, as int8 to q, the second 8 of them `stride` bytes after the first. Returns
/// vectors that sum to their sum.
inline Int quantise(const float* x, Float inverse, int8_t* q, int stride) {
  Int sum{};
#pragma GCC unroll 4
  for (int k = 0; k < 16; k += kLanes) {
    // Adding 1.5 * 2^23 leaves the nearest integer (ties to even) in the low bits.
    const Int values = (Int)(load_floats(x + k) * inverse + 12582912.0f) - 0x4b400000;
    Simd::store_bytes(q + k / 8 * stride + k % 8, values);
    sum += values;
  }
  return sum;
}

template <int kGroup>  // blocks of 32 under one scale
void prepare_int8(const float* x, int64_t ldx, int tokens, int64_t cols, const ActivationTile& tile) {
  const int64_t blocks = cols / 32;
  // Of a pair of tokens, 8 inputs of each take turns.
  const bool pairs = Simd::kTokenPairs && tokens > 1;
  const int stride = pairs ? 16 : 8;
  for (int t = 0; t < tokens; t++) {
    const float* row = x + t * ldx;
    for (int64_t b0 = 0; b0 < blocks; b0 += kGroup) {
      const int32_t top_bits = top_magnitude<kGroup>(row + 32 * b0);
      float top;
      std::memcpy(&top, &top_bits, 4);
      const bool finite = top_bits < 0x7f800000;
      const bool zero = top < kSmallestTop;
      const float scale = !finite ? __builtin_nanf("") : zero ? 0 : top / 127;
      const Float inverse = Simd::splat(!finite || zero ? 0 : 127 / top);
      for (int64_t b = b0; b < b0 + kGroup; b++) {
        const int64_t at = b * tokens + t;
        int8_t* q = static_cast<int8_t*>(tile.x) + 32 * at - (pairs ? 24 * (t % 2) : 0);
        Int low{}, high{};
        if (finite) {
          low = quantise(row + 32 * b, inverse, q, stride);
          high = quantise(row + 32 * b + 16, inverse, q + 2 * stride, stride);
        } else {
          for (int i = 0; i < 4; i++) std::memset(q + i * stride, 0, 8);
        }
        const int32_t sum = Simd::sum_lanes(low + high), sum_low = Simd::sum_lanes(low);
        tile.scale[at] = scale;
        tile.start[3 * at] = -sum;
        tile.start[3 * at + 1] = -sum_low;
        tile.start[3 * at + 2] = sum_low - sum;
        tile.sum[at] = (kGroup > 1 ? 1.0f : scale) * static_cast<float>(sum);
      }
    }
  }
}

constexpr int kPrefetchBytes = 2176;

template <PanelLayout layout>
constexpr void set_quantised(Kernels& k, Format format) {
  // A stream with high bits reads better with prefetches, which only the shapes with time for them have.
  constexpr int kPrefetch4 = layout.code_bits % 4 ? kPrefetchBytes : 0;
  auto& p = k.product[static_cast<int>(format)];
  p[kTile1] = quantised_product<layout, 1, 0>;
  p[kTile2] = quantised_product<layout, 2, 0>;
  p[kTile4] = quantised_product<layout, 4, kPrefetch4>;
  p[kTile8] = quantised_product<layout, 8, 0>;
  p[kTile16] = quantised_product<layout, 16, kPrefetchBytes>;
  p[kTile8Prefetch] = quantised_product<layout, 8, kPrefetchBytes>;
  k.scheme[static_cast<int>(format)] = layout.grouped() ? Scheme::Int8x256 : Scheme::Int8x32;
}

constexpr Kernels make_kernels() {
  Kernels k{};
  k.prepare[static_cast<int>(Scheme::F32)] = prepare_f32;
  k.prepare[static_cast<int>(Scheme::BF16)] = prepare_bf16;
  k.prepare[static_cast<int>(Scheme::Int8x32)] = prepare_int8<1>;
  k.prepare[static_cast<int>(Scheme::Int8x256)] = prepare_int8<8>;
#define VLLM_FLOAT_FORMAT(name)                             \
  {                                                         \
    auto& p = k.product[static_cast<int>(Format::name)];    \
    p[kTile1] = float_product<Format::name, 1>;             \
    p[kTile2] = float_product<Format::name, 2>;             \
    p[kTile4] = float_product<Format::name, 4>;             \
    p[kTile8] = float_product<Format::name, 8>;             \
    p[kTile12] = float_product<Format::name, 12>;           \
    k.scheme[static_cast<int>(Format::name)] = Scheme::F32; \
  }
#define VLLM_QUANTISED_FORMAT(name) set_quantised<panel_layout(Format::name)>(k, Format::name);
  VLLM_FLOAT_FORMAT(F32)
  VLLM_FLOAT_FORMAT(F16)
  VLLM_FLOAT_FORMAT(BF16)
  VLLM_FLOAT_FORMAT(F8_E4M3)
  VLLM_FLOAT_FORMAT(F8_E4M3_64)
  VLLM_QUANTISED_FORMAT(Q4_0)
  VLLM_QUANTISED_FORMAT(Q4_1)
  VLLM_QUANTISED_FORMAT(Q5_0)
  VLLM_QUANTISED_FORMAT(Q5_1)
  VLLM_QUANTISED_FORMAT(Q8_0)
  VLLM_QUANTISED_FORMAT(Q4_K)
  VLLM_QUANTISED_FORMAT(Q5_K)
  VLLM_QUANTISED_FORMAT(Q6_K)
  VLLM_QUANTISED_FORMAT(IQ4_NL)
  VLLM_QUANTISED_FORMAT(MXFP4)
  VLLM_QUANTISED_FORMAT(NVFP4)
  VLLM_QUANTISED_FORMAT(Q2_K)
  VLLM_QUANTISED_FORMAT(Q3_K)
  VLLM_QUANTISED_FORMAT(IQ4_XS)
  VLLM_QUANTISED_FORMAT(TQ1_0)
  VLLM_QUANTISED_FORMAT(TQ2_0)
  VLLM_QUANTISED_FORMAT(IQ2_XXS)
  VLLM_QUANTISED_FORMAT(IQ2_XS)
  VLLM_QUANTISED_FORMAT(IQ2_S)
  VLLM_QUANTISED_FORMAT(IQ3_XXS)
  VLLM_QUANTISED_FORMAT(IQ3_S)
  VLLM_QUANTISED_FORMAT(IQ1_S)
  VLLM_QUANTISED_FORMAT(IQ1_M)
  VLLM_QUANTISED_FORMAT(Q1_0)
  VLLM_QUANTISED_FORMAT(Q4_Z)
#undef VLLM_FLOAT_FORMAT
#undef VLLM_QUANTISED_FORMAT
  if (Simd::kBf16Dots) k.scheme[static_cast<int>(Format::BF16)] = Scheme::BF16;
  return k;
}

}  // namespace
}  // namespace vllm::cpu
