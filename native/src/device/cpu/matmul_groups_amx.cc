// matmul with AMX for formats whose scales within a group of 256 inputs are integers, beside one or two
// floats for all of it. The sums of a group are exact integers here, so tiles of many tokens and vectors of
// few agree.
//
// In a tile a weight is code times scale, in two bytes of their own: digits.
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : VnniVectors {
  /// sum + both products of the int16 pairs of w and x.
  static Int pair_dots(Int sum, Int w, const int32_t* x) {
    asm("vpdpwssd %2%{1to16%},%1,%0" : "+v"(sum) : "v"(w), "m"(*x));
    return sum;
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_amx-inl.h"

namespace vllm::cpu {
namespace {

constexpr int kGroupInputs = 256, kGroupBlocks = 8;
constexpr int kGroupBytes =
    kTokens * kGroupInputs;  // of a tile's inputs, and of one digit of a panel's weights

Int int8_ints(const uint8_t* p) { return (Int)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)); }

/// What comes a stretch after a block, with its share of the scales.
template <PanelLayout layout>
inline void prefetch_block(const uint8_t* block) {
#pragma GCC unroll 8
  for (int line = 0; line <= layout.block_bytes / 64; line++)
    __builtin_prefetch(block + kPrefetchBytes + 64 * line);
}

/// Where neither codes nor the scales, of six bits, have a sign, a digit is the code times three bits of the
/// scale. Elsewhere digits are the bytes of the product, of which the high one has a sign.
template <PanelLayout layout>
constexpr bool kShortDigits = layout.scales == Scales::Super;
template <PanelLayout layout>
constexpr int kDigitBits = kShortDigits<layout> ? 3 : 8;

/// The integer scales of a block, or of its halves.
struct IntegerScales {
  Int first, second, minimum;
};

template <PanelLayout layout>
inline IntegerScales integer_scales(const uint8_t* group, int b) {
  IntegerScales s{};
  if constexpr (layout.scales == Scales::Super) {
    s.first = s.second = Simd::byte_ints(group + 64 + 16 * b);
    s.minimum = Simd::byte_ints(group + 192 + 16 * b);
  } else if constexpr (layout.scales == Scales::SuperHalves) {
    s.first = int8_ints(group + 64 + 32 * b);
    s.second = int8_ints(group + 80 + 32 * b);
  } else {
    static_assert(layout.scales == Scales::SuperPlain);
    s.first = s.second = int8_ints(group + 64 + 16 * b);
  }
  return s;
}

/// The minima of blocks 2p and 2p + 1 side by side.
template <PanelLayout layout>
inline Int pair_of_minima(const uint8_t* group, int p) {
  return integer_scales<layout>(group, 2 * p).minimum | integer_scales<layout>(group, 2 * p + 1).minimum
                                                            << 16;
}

/// What a group adds to a token's rows: `sum` of inputs times values times scales, and the sum of inputs
/// times minima.
template <PanelLayout layout>
inline Float group_value(Int sum, Int minima, const GroupScales& scales, float x_scale, Float rows) {
  Float value = __builtin_convertvector(sum, Float) * scales.d;
  if constexpr (layout.minimum())
    value = Simd::fma(__builtin_convertvector(minima, Float), scales.other, value);
  return Simd::fma(value, Simd::splat(x_scale), rows);
}

/// Of few tokens.
template <PanelLayout layout, int T>
__attribute__((noinline)) void vector_product(const TileProduct& product) {
  const Word book = book_of<layout>(product);
  alignas(64) float total[16 * T] = {};
  prefetch_outputs<T, 16>(product);
  const int8_t* x = static_cast<const int8_t*>(product.tile.x);
  const float* x_scale = product.tile.scale;
  const int32_t* start = product.tile.start;
  const auto* x_sums = reinterpret_cast<const int32_t*>(product.tile.sum);
  const uint8_t* group = product.panel;
  for (int64_t k = 0; k < product.cols; k += kGroupInputs, group += layout.group_bytes) {
    Int sum[T] = {}, minima[T] = {};
    const uint8_t* block = group + layout.data;
    for (int pair = 0; pair < kGroupBlocks / 2; pair++, x += 64 * T, x_sums += T) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++, block += layout.block_bytes, start += 3 * T) {
        prefetch_block<layout>(block);
        Word w[8];
        load_block<layout, false>(group, block, 2 * pair + i, 0, book, w);
        const IntegerScales scales = integer_scales<layout>(group, 2 * pair + i);
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) {
          const int8_t* const in = x + 64 * t + 32 * i;
          const auto begin = [&](int which) {
            return layout.offset_bits < 0
                       ? Int{}
                       : Simd::splat_int(start + 3 * t + which) << std::max(layout.offset_bits, 0);
          };
          const Int low = Simd::dots<layout.largest, 4>(w, in, begin(1));
          const Int high = Simd::dots<layout.largest, 4>(w + 4, in + 16, begin(2));
          sum[t] += layout.halves() ? low * scales.first + high * scales.second : (low + high) * scales.first;
        }
      }
      if constexpr (layout.minimum()) {
        const Int both = pair_of_minima<layout>(group, pair);
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) minima[t] = Simd::pair_dots(minima[t], both, x_sums + t);
      }
    }
    const GroupScales scales = load_group_scales<layout>(group, 0);
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
      float* const rows = total + 16 * t;
      store_floats(rows, group_value<layout>(sum[t], minima[t], scales, x_scale[t], load_floats(rows)));
    }
    x_scale += kGroupBlocks * T;
  }
  finish(product, total, T, 16);
}

/// The digits of 4 inputs for each of 16 rows. `scale` is that of a row twice, in 16 bits each.
template <PanelLayout layout>
inline void make_digits(__m512i codes, __m512i scale, __m512i& low, __m512i& high) {
  if constexpr (kShortDigits<layout>) {
    static_assert(layout.largest * 7 <= 255, "products of neighbouring bytes stay apart");
    low = _mm512_mullo_epi16(codes, _mm512_and_si512(scale, _mm512_set1_epi16(7)));
    high = _mm512_mullo_epi16(codes, _mm512_srli_epi16(scale, 3));
  } else {
    const __m512i offset = _mm512_set1_epi16(kCodeOffset<layout>);
    __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(0xff));
    __m512i odd = _mm512_srli_epi16(codes, 8);
    if (kCodeOffset<layout> != 0) {
      even = _mm512_sub_epi16(even, offset);
      odd = _mm512_sub_epi16(odd, offset);
    }
    even = _mm512_mullo_epi16(even, scale);
    odd = _mm512_mullo_epi16(odd, scale);
    low = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, _mm512_slli_epi16(odd, 8));
    high = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, _mm512_srli_epi16(even, 8), odd);
  }
}

/// The weights of a group as tiles of 64 inputs: in turn one of the low digits and one of the high ones.
template <PanelLayout layout>
inline void make_digit_tiles(const uint8_t* group, Word book, uint8_t* digits) {
  const uint8_t* block = group + layout.data;
  for (int b = 0; b < kGroupBlocks; b++, block += layout.block_bytes) {
    prefetch_block<layout>(block);
    Word w[8];
    load_block<layout, false>(group, block, b, 0, book, w);
    const IntegerScales scales = integer_scales<layout>(group, b);
    const auto twice = [](Int v) { return (__m512i)((v & 0xffff) | v << 16); };
    const __m512i first = twice(scales.first), second = twice(scales.second);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++, digits += 64) {
      __m512i low, high;
      make_digits<layout>((__m512i)w[i], i < 4 ? first : second, low, high);
      _mm512_store_si512(digits, low);
      _mm512_store_si512(digits + kTileBytes, high);
    }
    if (b % 2) digits += kTileBytes;
  }
}

/// Sets the sums of a group, [kTiles][low and high][16 tokens][16 rows]. Tiles of x are `next` bytes apart.
template <int kTiles, bool sign>
inline void digit_sums(const uint8_t* digits, const uint8_t* x, int64_t next, int32_t* sums) {
  zero_tile<0>();
  zero_tile<1>();
  if (kTiles == 2) zero_tile<2>(), zero_tile<3>();
#pragma GCC unroll 4
  for (int k = 0; k < kGroupInputs / 64; k++) {
    load_tile<4>(x + kTileBytes * k, 64);
    load_tile<6>(digits + 2 * kTileBytes * k, 64);
    load_tile<7>(digits + 2 * kTileBytes * k + kTileBytes, 64);
    int8_dots<0, 4, 6, false>();
    int8_dots<1, 4, 7, sign>();
    if (kTiles == 2) {
      load_tile<5>(x + next + kTileBytes * k, 64);
      int8_dots<2, 5, 6, false>();
      int8_dots<3, 5, 7, sign>();
    }
  }
  store_tile<0>(sums, 64);
  store_tile<1>(sums + kTileSums, 64);
  if (kTiles == 2) {
    store_tile<2>(sums + 2 * kTileSums, 64);
    store_tile<3>(sums + 3 * kTileSums, 64);
  }
}

/// Adds a group to the rows of a tile, [16 tokens][16], from its digit_sums. `x_scale` and `x_sums` are of
/// the tile and the group.
template <PanelLayout layout>
inline void add_group(const int32_t* sums, const Int minima[4], const GroupScales& scales,
                      const float* x_scale, const int32_t* x_sums, float* rows) {
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; t++, sums += 16, rows += 16) {
    const Int sum = (Int)load_words(sums) + ((Int)load_words(sums + kTileSums) << kDigitBits<layout>);
    Int of_minima{};
#pragma GCC unroll 4
    for (int p = 0; p < (layout.minimum() ? 4 : 0); p++)
      of_minima = Simd::pair_dots(of_minima, minima[p], x_sums + kTokens * p + t);
    store_floats(rows, group_value<layout>(sum, of_minima, scales, x_scale[t], load_floats(rows)));
  }
}

/// Of tiles of 16 tokens.
template <PanelLayout layout>
__attribute__((noinline)) void tile_product(const TileProduct& product) {
  configure(kTokens, kTileInputs);
  const Word book = book_of<layout>(product);
  alignas(64) uint8_t digits[2 * kGroupBytes];
  alignas(64) int32_t sums[2][2 * kTileSums];
  GroupScales scales{};
  Int minima[4] = {};
  const ActivationTile& x = product.tile;
  const int64_t groups = product.cols / kGroupInputs;
  const auto unpack = [&](int64_t g) {
    const uint8_t* const group = product.panel + g * layout.group_bytes;
    make_digit_tiles<layout>(group, book, digits);
    scales = load_group_scales<layout>(group, 0);
#pragma GCC unroll 4
    for (int p = 0; p < (layout.minimum() ? 4 : 0); p++) minima[p] = pair_of_minima<layout>(group, p);
  };
  const auto multiply = [&](int64_t g, int tile, bool two) {
    const uint8_t* const in = static_cast<const uint8_t*>(x.x) + (tile * groups + g) * kGroupBytes;
    if (two) {
      digit_sums<2, !kShortDigits<layout>>(digits, in, groups * kGroupBytes, sums[0]);
    } else {
      digit_sums<1, !kShortDigits<layout>>(digits, in, 0, sums[0]);
    }
  };
  const auto add = [&](int64_t g, int tile, int second, float* rows) {
    // Of the sums of blocks there are half as many, side by side, as of the other numbers.
    const int64_t at = tile * groups * kGroupBlocks, block = g * kGroupBlocks;
    add_group<layout>(sums[second], minima, scales, x.scale + (at + block) * kTokens,
                      reinterpret_cast<const int32_t*>(x.sum) + (at + block / 2) * kTokens, rows);
  };
  by_stretches(product, groups, unpack, multiply, add);
}

template <Format f>
void set_groups(Kernels& kernels) {
  constexpr PanelLayout layout = panel_layout(f);
  auto& product = kernels.product[static_cast<int>(f)];
  product[kTile1] = product[kTile1Ahead] = vector_product<layout, 1>;
  product[kTile2] = product[kTile2Ahead] = vector_product<layout, 2>;
  product[kTile4] = product[kTile4Ahead] = vector_product<layout, 4>;
  product[kTile8] = product[kTile8Ahead] = vector_product<layout, 8>;
  product[kTile16] = tile_product<layout>;
  kernels.scheme[static_cast<int>(f)] = Scheme::Int8Tiles;
}

}  // namespace

void add_amx_groups(Kernels& kernels) {
  using enum Format;
  set_groups<Q3_K>(kernels);
  set_groups<Q4_K>(kernels);
  set_groups<Q5_K>(kernels);
  set_groups<Q6_K>(kernels);
  set_groups<IQ4_XS>(kernels);
  set_groups<IQ3_XXS>(kernels);
  set_groups<IQ2_XXS>(kernels);
  kernels.prepare[static_cast<int>(Scheme::Int8Tiles)] = prepare_int8<kGroupBlocks, true>;
  kernels.by_16[static_cast<int>(Scheme::Int8Tiles)] = true;
}

}  // namespace vllm::cpu
