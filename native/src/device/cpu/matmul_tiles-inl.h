// The products and the activation tiles, written once over the vectors of an instruction set. A
// matmul_<isa>.cc file defines `struct Simd` in vllm::cpu and an anonymous namespace and then includes this
// file; nothing here may have external linkage, for each copy is compiled with other instructions.
//
// Simd, of simd.h's kLanes: kRegisters; Float, Int, Word: vectors of kLanes f32, int32, uint32, any
// alignment;
//   fma(a, b, c) = a * b + c; splat(float), splat_int(const int32_t*), and from memory alone splat_at(const
//   float*), splat_int_at(const int32_t*);
//   half(p): kLanes f16 as f32; byte_ints(p): kLanes uint8 as Int;
//   byte_pairs(p): 2 kLanes uint8 as the 16-bit halves of a Word;
//   half_of_bytes(p): kLanes bytes as f32, each the eight bits after the sign of an f16;
//   lookup(book, w): the low four bits of the bytes of w, whose highest is zero, as indices into 16 bytes, of
//   which table(p) makes book;
//   average(a, b): of bytes whose sums are even;
//   e4m3(p): kLanes E4M3 as f32 * 2^-8;
//   max_lanes(v), sum_lanes(v); store_bytes(p, v): the lanes, which fit int8, as kLanes bytes;
//   dots<max, n>(w, x, start) = start + sum of n vectors of bytes (unsigned, at most `max`) times 4 int8 of x
//   each; kSignedBytes: dots<255, n> takes signed bytes instead; kTurns: so many tokens take turns in dots;
//   kMultiples: dots<max, n, m> is start + m times the sum;
//   kBf16Dots: bf16_dot(c, w, x) = c + both products of the bf16 pairs of w and x;
//   kTokenPairs: two tokens at a time, their inputs laid out as in prepare_int8: pair_dots<n>(w, x, first,
//   second) adds to the sums of two tokens what dots would, after pair_rows(w) of the 8 vectors of a block;
//   kShiftTables: shift_tables(x, tables) makes for each half of 32 int8 the table {0, 2a, 2b, 2a + 2b} -
//   9 (a + b), a being the sum of the half's first 8 and b that of its last; pick(table, w): of a table what
//   the low two bits of w choose; pair_sums(a, b, w) = a times the low halves of w plus b times the high
//   ones, all 16-bit.
#include <cstring>

#include "device/cpu/matmul_blocks-inl.h"

namespace vllm::cpu {
namespace {

constexpr int kPrefetchBytes = 2176;
constexpr bool kReadsAhead =
    kLanes >= 8;  // processors of narrower vectors get no products of their own for it

/// Integer sums of a block are exact, and the float operations of one (row, token) run block by block, in the
/// same order in every tile shape: that makes a result independent of the shape.
template <PanelLayout layout, int T, int kPrefetch, class S = Simd>
__attribute__((noinline)) void quantised_product(const TileProduct& product) {
  constexpr bool kGrouped = layout.grouped();  // Int8x256: the activation scale multiplies once a group
  constexpr bool kTotals = kGrouped || layout.d_last();
  constexpr int kGroup = layout.group_inputs / 32;
  constexpr int kParts = 16 / kLanes;
  // With many tokens, the codes of PanelLayout::odd become bytes of an offset that is a power of two. With
  // few, IQ1_M's shifts and offset are looked up in tables of the inputs' sums instead of joining the codes.
  constexpr bool kWhole = layout.odd != 0 && T > 2;
  constexpr bool kTables = layout.scales == Scales::SuperShifts && S::kShiftTables && T <= 2;
  // Nor do few tokens pay for the shifts that would give short codes of both halves of a block one size.
  constexpr bool kSplit =
      layout.code_bits <= 2 && T <= 2 && (layout.scales != Scales::SuperShifts || kTables);
  constexpr int kLowShift = (layout.code_bits == 1 ? 1 : 0) + (kTables ? 3 : 0);
  constexpr int kHighShift = kLowShift - layout.code_bits;
  constexpr int kUp = kHighShift > 0 ? kHighShift : 0, kDown = kUp - kHighShift;
  constexpr bool kShiftSums = kSplit && (kDown > 0 || !S::kMultiples);
  constexpr int kOdd = kWhole || kTables ? 0 : layout.odd;
  constexpr int kOffsetBits = layout.offset_bits + (!kWhole ? 0 : layout.odd > 0 ? 2 : 1);
  constexpr int kPlus = kWhole ? (1 << kOffsetBits) - (2 << layout.offset_bits) - layout.odd : 0;
  constexpr int kMax = kWhole ? 2 * layout.largest + kPlus : kSplit ? 12 : layout.largest;
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
  alignas(64) float total[T * 16];  // f32 sums; with kTotals of the groups so far
#pragma GCC unroll 64
  for (int i = 0; i < kParts * T; i++) acc[i / T][i % T] = Float{};
  if constexpr (kTotals) {
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
    alignas(32) int32_t tables[kTables ? T : 1][2][4];
    if constexpr (kTables) {
#pragma GCC unroll 2
      for (int t = 0; t < T; t++) S::shift_tables(x + 32 * t, tables[t]);
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts; part++) {
      Word w[8];
      load_block<layout, kSplit>(group, block, g, part * kLanes, book, w);
#pragma GCC unroll 8
      for (int i = 0; i < 8 && kWhole; i++) w[i] = w[i] + w[i] + 0x01010101u * kPlus;
      if constexpr (kPairs) S::pair_rows(w);
      if (g == 0) scales[part] = load_group_scales<layout>(group, part * kLanes);
      const BlockScales block_scales = load_scales<layout>(group, scales[part], g, part * kLanes);
#pragma GCC unroll 16
      for (int first = 0; first < T; first += U) {
        if (kPrefetch > 0 && part == 0) {
          constexpr int kLines = layout.block_bytes / 64 + 1;
#pragma GCC unroll 8
          for (int line = first * kLines / T; line < (first + U) * kLines / T; line++)
            __builtin_prefetch(ahead + 64 * line);
        }
        const auto begin = [&](int t, int which) {
          return kOffset ? spread_int<T <= 2>(start + 3 * t + which) << (kOffset ? kOffsetBits : 0) : Int{};
        };
        Int low[U], high[U];  // of the halves; without halves low is the sum of the block
        [[maybe_unused]] Int low_dots[U]{}, high_dots[U]{};  // with kShiftSums, what these lack
#pragma GCC unroll 4
        for (int u = 0; u < U; u++) {
          if constexpr (kTables) {
            const Word shifts = load_shifts(group, g, part * kLanes);
            low[u] = S::pick(tables[first + u][0], shifts >> 5);
            high[u] = S::pick(tables[first + u][1], shifts >> 21);
          } else {
            low[u] = begin(first + u, layout.halves() ? 1 : 0);
            high[u] = layout.halves() ? begin(first + u, 2) : Int{};
          }
        }
        if constexpr (kPairs) {
          constexpr int n = 8 / kChains;
          Int* const a = kShiftSums ? low_dots : low;
          Int* const b = kShiftSums ? high_dots : high;
          S::template pair_dots<n>(w, x + 32 * first, a[0], a[1]);
          if constexpr (n < 8) S::template pair_dots<n>(w + n, x + 32 * first + 8 * n, b[0], b[1]);
        } else {
#pragma GCC unroll 8
          for (int i = 0; i < 8; i += kStep) {
#pragma GCC unroll 4
            for (int u = 0; u < U; u++) {
              const int8_t* inputs = x + 32 * (first + u) + 4 * i;
              Int& sum = i >= 4 && kChains > 1 ? high[u] : low[u];
              if constexpr (kShiftSums) {
                Int& dots = i >= 4 ? high_dots[u] : low_dots[u];
                dots = S::template dots<kMax, kStep>(w + i, inputs, dots);
              } else if constexpr (!kSplit) {
                sum = S::template dots<kMax, kStep>(w + i, inputs, sum);
              } else if (i < 4) {
                sum = S::template dots<kMax, kStep, (1 << kLowShift)>(w + i, inputs, sum);
              } else {
                sum = S::template dots<kMax, kStep, (1 << kUp)>(w + i, inputs, sum);
              }
            }
          }
        }
#pragma GCC unroll 4
        for (int u = 0; u < U; u++) {
          const int t = first + u;
          if constexpr (kShiftSums) {
            low[u] += low_dots[u] << kLowShift;
            high[u] += high_dots[u] << kUp >> kDown;
          }
          if constexpr (kOdd != 0) {
            const auto value_sum = [&](Int sum, int which) {
              const int32_t rest = ((2 << kOffsetBits) + kOdd) * start[3 * t + which];
              return sum + sum + Simd::splat_int(&rest);
            };
            if (kChains > 1 && !layout.halves()) low[u] += high[u], high[u] = Int{};
            low[u] = value_sum(low[u], layout.halves() ? 1 : 0);
            if (layout.halves()) high[u] = value_sum(high[u], 2);
          }
          if constexpr (kTables) {
            const Word factors = load_shifts(group, g, part * kLanes) & 0x001f001fu;
            acc[part][t] += __builtin_convertvector(S::pair_sums(low[u], high[u], factors), Float);
            continue;
          }
          const Int sum = kChains > 1 && !layout.halves() ? low[u] + high[u] : low[u];
          acc[part][t] = add_sums<layout, T <= 2>(acc[part][t], sum, high[u], block_scales, x_scale + t,
                                                  x_sum + t, start + 3 * t);
        }
      }
    }
    block += layout.block_bytes;
    if (++g < kGroup) continue;
    g = 0;
    group += layout.group_bytes;
    block = group + layout.data;
    if constexpr (kTotals) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; part++) {
#pragma GCC unroll 16
        for (int t = 0; t < T; t++) {
          float* sum = total + 16 * t + part * kLanes;
          Float factor = layout.d_last() ? scales[part].d : Simd::splat(x_scale[t]);
          if constexpr (layout.d_last() && kGrouped) factor *= Simd::splat(x_scale[t]);
          store_floats(sum, Simd::fma(acc[part][t], factor, load_floats(sum)));
          acc[part][t] = Float{};
        }
      }
    }
  }
  if constexpr (!kTotals) {
#pragma GCC unroll 4
    for (int part = 0; part < kParts; part++) {
#pragma GCC unroll 16
      for (int t = 0; t < T; t++) store_floats(total + 16 * t + part * kLanes, acc[part][t]);
    }
  }
  finish(product, total, T, 16);
}

template <int bytes>
inline void prefetch_ahead(const uint8_t* w) {
  for (int at = 0; at < bytes; at += 64) __builtin_prefetch(w + kPrefetchBytes + at);
}

/// One pass: adds to c V vectors of rows from row `first` times U tokens from `token`, over `cols` inputs in
/// rising order.
template <Format f, int T, int V, int U, bool ahead, class S = Simd>
inline __attribute__((always_inline)) void float_pass(const uint8_t* panel, int64_t cols, const void* x,
                                                      int first, int token, float* c) {
  const bool prefetches = ahead && first == 0 && token == 0;
  Float acc[V][U];
#pragma GCC unroll 64
  for (int i = 0; i < V * U; i++)
    acc[i / U][i % U] = load_floats(c + (token + i % U) * 32 + first + i / U * kLanes);
  if constexpr (f == Format::BF16 && S::kBf16Dots) {
    const uint8_t* w = panel + 4 * first;
    const int32_t* pairs = static_cast<const int32_t*>(x) + token;
    for (int64_t k = 0; k < cols; k += 2, w += 128, pairs += T) {
      if (prefetches) prefetch_ahead<128>(w);
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
      if (prefetches) prefetch_ahead<128>(w);
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
      if (prefetches) prefetch_ahead<32 * kSize>(w);
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
template <Format f, int T, bool ahead>
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
        float_pass<f, T, V, U, ahead>(panel + layout.data, cols, x, first, token, c);
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

inline void prepare_f32(const float* x, int64_t ldx, int tokens, int64_t cols, const ActivationTile& tile) {
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

inline void prepare_bf16(const float* x, int64_t ldx, int tokens, int64_t cols, const ActivationTile& tile) {
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

/// kGroup: blocks of 32 under one scale; kBy64: for Scheme::Int8Tiles.
template <int kGroup, bool kBy64 = false>
void prepare_int8(const float* x, int64_t ldx, int tokens, int64_t cols, const ActivationTile& tile) {
  const int64_t blocks = cols / 32;
  // Of a pair of tokens, 8 inputs of each take turns.
  const bool pairs = Simd::kTokenPairs && tokens > 1 && !kBy64;
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
        const int64_t at64 = b / 2 * tokens + t;
        int8_t* q = static_cast<int8_t*>(tile.x) +
                    (kBy64 ? 64 * at64 + 32 * (b % 2) : 32 * at - (pairs ? 24 * (t % 2) : 0));
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
        if constexpr (kBy64) {
          const auto of_block = static_cast<int16_t>(sum);
          std::memcpy(reinterpret_cast<uint8_t*>(tile.sum) + 4 * at64 + 2 * (b % 2), &of_block, 2);
        } else {
          tile.sum[at] = (kGroup > 1 ? 1.0f : scale) * static_cast<float>(sum);
        }
      }
    }
  }
}

template <PanelLayout layout>
constexpr void set_quantised(Kernels& k, Format format) {
  // A stream with high bits reads better with prefetches, which only the shapes with time for them have.
  constexpr int kPrefetch4 = layout.code_bits % 4 ? kPrefetchBytes : 0;
  constexpr int kFew = kReadsAhead ? kPrefetchBytes : 0;
  auto& p = k.product[static_cast<int>(format)];
  p[kTile1] = quantised_product<layout, 1, 0>;
  p[kTile2] = quantised_product<layout, 2, 0>;
  p[kTile4] = quantised_product<layout, 4, kPrefetch4>;
  p[kTile8] = quantised_product<layout, 8, 0>;
  p[kTile16] = quantised_product<layout, 16, kPrefetchBytes>;
  p[kTile1Ahead] = quantised_product<layout, 1, kFew>;
  p[kTile2Ahead] = quantised_product<layout, 2, kFew>;
  p[kTile4Ahead] = quantised_product<layout, 4, kFew>;
  p[kTile8Ahead] = quantised_product<layout, 8, kPrefetchBytes>;
  k.scheme[static_cast<int>(format)] = layout.grouped() ? Scheme::Int8x256 : Scheme::Int8x32;
}

template <Format f>
constexpr void set_float(Kernels& k) {
  auto& p = k.product[static_cast<int>(f)];
  p[kTile1] = float_product<f, 1, false>;
  p[kTile2] = float_product<f, 2, false>;
  p[kTile4] = float_product<f, 4, false>;
  p[kTile8] = float_product<f, 8, false>;
  p[kTile12] = float_product<f, 12, false>;
  p[kTile1Ahead] = float_product<f, 1, kReadsAhead>;
  p[kTile2Ahead] = float_product<f, 2, kReadsAhead>;
  p[kTile4Ahead] = float_product<f, 4, kReadsAhead>;
  p[kTile8Ahead] = float_product<f, 8, kReadsAhead>;
  k.scheme[static_cast<int>(f)] = f == Format::BF16 && Simd::kBf16Dots ? Scheme::BF16 : Scheme::F32;
}

template <Format... formats>
constexpr void set_quantised(Kernels& k) {
  (set_quantised<panel_layout(formats)>(k, formats), ...);
}

/// A template, so that a file that does not call it compiles no products of them.
template <class S = Simd>
constexpr void add_quantised_formats(Kernels& k) {
  using enum Format;
  set_quantised<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4, NVFP4, Q2_K, Q3_K, IQ4_XS,
                TQ1_0, TQ2_0, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M, Q1_0, Q4_Z>(k);
}

template <class S = Simd>
constexpr Kernels make_kernels() {
  Kernels k{};
  k.prepare[static_cast<int>(Scheme::F32)] = prepare_f32;
  k.prepare[static_cast<int>(Scheme::BF16)] = prepare_bf16;
  k.prepare[static_cast<int>(Scheme::Int8x32)] = prepare_int8<1>;
  k.prepare[static_cast<int>(Scheme::Int8x256)] = prepare_int8<8>;
  set_float<Format::F32>(k);
  set_float<Format::F16>(k);
  set_float<Format::BF16>(k);
  set_float<Format::F8_E4M3>(k);
  set_float<Format::F8_E4M3_64>(k);
  add_quantised_formats(k);
  return k;
}

}  // namespace
}  // namespace vllm::cpu
