#include "device/cpu/pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/integer_blocks.h"
#include "base/mapped_file.h"
#include "device/checks.h"
#include "device/cpu/matmul.h"
#include "device/cpu/pack_layout.h"

namespace vllm::cpu {
namespace {

uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
void store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

/// 32 nibbles as bytes, in the order of the inputs, into the low and high nibbles of `out`, 64 bytes apart.
void put_nibbles(const uint32_t q[8], uint8_t* out) {
  for (int i = 0; i < 4; i++) store32(out + 64 * i, q[i] | q[i + 4] << 4);
}

/// The nibbles of Q4_0, Q4_1, Q5_0 and Q5_1 are paired in the file as in the panel.
void copy_nibbles(const uint8_t* in, uint8_t* out) {
  for (int i = 0; i < 4; i++) store32(out + 64 * i, load32(in + 4 * i));
}

/// Bit 4i + c of `bits` becomes bit bit_place(i) of byte c.
uint32_t spread_bits(uint32_t bits) {
  uint32_t out = 0;
  for (int c = 0; c < 4; c++) {
    uint32_t x = bits >> c & 0x11111111;
    x |= x >> 15;
    x = (x & 0x0303) | (x & 0x3030) >> 2;
    out |= ((x & 0xf) | (x >> 4 & 0xf0)) << 8 * c;
  }
  return out;
}

/// The eight (scale, minimum) pairs of Q4_K and Q5_K, six bits each, from 12 bytes.
void unpack_scales(const uint8_t* s, uint8_t scale[8], uint8_t minimum[8]) {
  for (int j = 0; j < 4; j++) {
    scale[j] = s[j] & 63;
    minimum[j] = s[j + 4] & 63;
    scale[j + 4] = (s[j + 8] & 15) | (s[j] >> 6) << 4;
    minimum[j + 4] = s[j + 8] >> 4 | (s[j + 4] >> 6) << 4;
  }
}

/// Block `b` (of 32 inputs) of a file row into row `r` of its group.
template <Format f>
void pack_block(const uint8_t* in, int64_t b, int r, uint8_t* group) {
  constexpr PanelLayout layout = panel_layout(f);
  constexpr int kBlocks = layout.group_inputs / 32;
  const int g = static_cast<int>(b % kBlocks);
  uint8_t* data = group + layout.data + g * layout.block_bytes + 4 * r;
  if constexpr (f == Format::Q4_Z) {
    std::memcpy(group + 64 * g + 4 * r, in, 4);
    group[256 + 16 * g + r] = in[4];
    in += 5;
  } else if constexpr (f == Format::MXFP4) {
    const uint16_t scale = half_e8m0_to_bf16(in[0]);
    std::memcpy(group + 32 * g + 2 * r, &scale, 2);
    in += 1;
  } else {
    std::memcpy(group + 32 * g + 2 * r, in, 2);
    if constexpr (layout.minimum()) std::memcpy(group + 64 + 32 * g + 2 * r, in + 2, 2);
    in += layout.minimum() ? 4 : 2;
  }
  if constexpr (f == Format::Q8_0) {
    for (int i = 0; i < 8; i++) store32(data + 64 * i, load32(in + 4 * i) ^ 0x80808080);
  } else if constexpr (f == Format::Q5_0 || f == Format::Q5_1) {
    copy_nibbles(in + 4, data);
    store32(data + 256, spread_bits(load32(in)));
  } else {
    copy_nibbles(in, data);
  }
}

/// A block of 64 inputs of NVFP4 into row `r` of its group.
void pack_nvfp4(const uint8_t* in, int r, uint8_t* group) {
  constexpr PanelLayout layout = panel_layout(Format::NVFP4);
  for (int g = 0; g < 2; g++) {
    uint32_t q[8];
    for (int h = 0; h < 2; h++) {
      const uint8_t scale = in[2 * g + h];
      group[32 * g + 16 * h + r] = scale == 0x7f ? 0 : scale & 0x7f;
      for (int i = 0; i < 2; i++) {
        const uint32_t both = load32(in + 4 + 16 * g + 8 * h + 4 * i);
        q[4 * h + i] = both & 0x0f0f0f0f;
        q[4 * h + i + 2] = both >> 4 & 0x0f0f0f0f;
      }
    }
    put_nibbles(q, group + layout.data + g * layout.block_bytes + 4 * r);
  }
}

/// 32 codes of 2 bits, a byte each, into the vectors of a block, `out` apart by 64 bytes.
void put_pairs(const uint8_t codes[32], uint8_t* out) {
  uint32_t pairs[2] = {0, 0};
  for (int i = 0; i < 8; i++) pairs[i / 2 % 2] |= (load32(codes + 4 * i) & 0x03030303) << pair_place(i);
  store32(out, pairs[0]);
  store32(out + 64, pairs[1]);
}

/// The same of 3 bits.
void put_triples(const uint8_t codes[32], uint8_t* out) {
  uint32_t q[8];
  std::memcpy(q, codes, 32);
  const uint32_t last = q[6] | q[7] << 4;
  for (int h = 0; h < 3; h++)
    store32(out + 64 * h, q[2 * h] | q[2 * h + 1] << 4 | (last >> (2 - h) & 0x11111111) << 3);
}

/// The codes of a format by IntegerBlock::value, from -128 up.
struct CodeOfValue {
  uint8_t code[256];
};

template <Format f>
constexpr CodeOfValue code_of_value() {
  constexpr PanelLayout layout = panel_layout(f);
  CodeOfValue out{};
  for (int v = -128; v < 128; v++) {
    int code = 0;
    if constexpr (layout.codebook) {
      const Codebook book = codebook(f);
      const int byte = (f == Format::IQ3_XXS ? v / 2 : v) + (1 << layout.offset_bits);
      for (int i = 15; i >= 0; i--) {
        if (book.bytes[i] == byte) code = i;
      }
    } else if constexpr (f == Format::IQ1_S || f == Format::IQ1_M) {
      code = (v + 12) >> 3;  // eighths: 8 (code - 1) - 1 or + 1
    } else if constexpr (layout.odd != 0) {
      code = (v + (2 << layout.offset_bits) + layout.odd) >> 1;
    } else {
      code = v + (1 << layout.offset_bits);
    }
    out.code[v + 128] = static_cast<uint8_t>(code);
  }
  return out;
}

/// A superblock of a format that has an IntegerForm into row `r` of its group.
template <Format f>
void pack_integers(const uint8_t* in, int r, uint8_t* group) {
  constexpr PanelLayout layout = panel_layout(f);
  static constexpr CodeOfValue kCodes = code_of_value<f>();
  static const IntegerForm& form = *integer_form(f);
  IntegerBlock block;
  form.unpack(in, block);
  std::memcpy(group + 2 * r, &block.d, 2);
  uint8_t* data = group + layout.data + 4 * r;
  for (int g = 0; g < 8; g++, data += layout.block_bytes) {
    const int8_t* value = block.value + 32 * g;
    const int8_t scale = block.scale[2 * g];
    if constexpr (layout.scales == Scales::SuperHalves) {
      group[64 + 32 * g + r] = static_cast<uint8_t>(scale);
      group[80 + 32 * g + r] = static_cast<uint8_t>(block.scale[2 * g + 1]);
    } else if constexpr (layout.scales == Scales::SuperPlain) {
      group[64 + 16 * g + r] = static_cast<uint8_t>(scale);
    } else if constexpr (layout.scales == Scales::SuperShifted) {
      group[64 + 16 * g + r] = static_cast<uint8_t>((value[0] & 7) == 7 ? -scale : scale);
    } else if constexpr (layout.scales == Scales::SuperOddHalves) {
      group[64 + 16 * g + r] = static_cast<uint8_t>(scale >> 1 | block.scale[2 * g + 1] >> 1 << 4);
    } else if constexpr (layout.scales == Scales::SuperShifts) {
      for (int h = 0; h < 2; h++) {
        const auto shift = [&](int k) { return (value[16 * h + k] & 7) == 1 ? 1 : 0; };
        group[64 + 32 * g + 2 * r + h] =
            static_cast<uint8_t>(block.scale[2 * g + h] | shift(0) << 5 | shift(8) << 6);
      }
    }
    uint8_t codes[32];
    for (int i = 0; i < 32; i++) codes[i] = kCodes.code[value[i] + 128];
    if constexpr (layout.code_bits == 4) {
      uint32_t q[8];
      std::memcpy(q, codes, 32);
      put_nibbles(q, data);
    } else if constexpr (layout.code_bits == 3) {
      put_triples(codes, data);
    } else {
      put_pairs(codes, data);
    }
  }
}

void pack_q2_k(const uint8_t* in, int r, uint8_t* group) {
  constexpr PanelLayout layout = panel_layout(Format::Q2_K);
  std::memcpy(group + 2 * r, in + 80, 2);
  std::memcpy(group + 32 + 2 * r, in + 82, 2);
  for (int g = 0; g < 8; g++) {
    group[64 + 32 * g + r] = in[2 * g];
    group[80 + 32 * g + r] = in[2 * g + 1];
    uint8_t codes[32];
    for (int i = 0; i < 32; i++) codes[i] = in[16 + g / 4 * 32 + i] >> 2 * (g % 4) & 3;
    put_pairs(codes, group + layout.data + g * layout.block_bytes + 4 * r);
  }
}

/// A block of 128 inputs of Q1_0.
void pack_q1_0(const uint8_t* in, int r, uint8_t* group) {
  constexpr PanelLayout layout = panel_layout(Format::Q1_0);
  std::memcpy(group + 2 * r, in, 2);
  for (int g = 0; g < 4; g++)
    store32(group + layout.data + g * layout.block_bytes + 4 * r, spread_bits(load32(in + 2 + 4 * g)));
}

/// A superblock of 256 inputs of a file row into row `r` of its group.
template <Format f>
void pack_superblock(const uint8_t* in, int r, uint8_t* group) {
  constexpr PanelLayout layout = panel_layout(f);
  uint8_t* data = group + layout.data + 4 * r;
  if constexpr (f == Format::Q6_K) {
    const uint8_t* scale = in + 192;
    std::memcpy(group + 2 * r, in + 208, 2);
    for (int g = 0; g < 8; g++, data += layout.block_bytes) {
      group[64 + 32 * g + r] = scale[2 * g];
      group[80 + 32 * g + r] = scale[2 * g + 1];
      const int n = g / 4, k = g % 4;
      uint32_t q[8], high[2] = {0, 0};
      for (int i = 0; i < 8; i++) {
        q[i] = load32(in + 64 * n + 32 * (k & 1) + 4 * i) >> (k < 2 ? 0 : 4) & 0x0f0f0f0f;
        high[i / 2 % 2] |= (load32(in + 128 + 32 * n + 4 * i) >> 2 * k & 0x03030303) << pair_place(i);
      }
      put_nibbles(q, data);
      store32(data + 256, high[0]);
      store32(data + 320, high[1]);
    }
  } else {
    uint8_t scale[8], minimum[8];
    unpack_scales(in + 4, scale, minimum);
    std::memcpy(group + 2 * r, in, 2);
    std::memcpy(group + 32 + 2 * r, in + 2, 2);
    const uint8_t* nibbles = in + (f == Format::Q5_K ? 48 : 16);
    for (int g = 0; g < 8; g++, data += layout.block_bytes) {
      group[64 + 16 * g + r] = scale[g];
      group[192 + 16 * g + r] = minimum[g];
      uint32_t q[8], bits = 0;
      for (int i = 0; i < 8; i++) {
        q[i] = load32(nibbles + 32 * (g / 2) + 4 * i) >> 4 * (g % 2) & 0x0f0f0f0f;
        if constexpr (f == Format::Q5_K) bits |= (load32(in + 16 + 4 * i) >> g & 0x01010101) << bit_place(i);
      }
      put_nibbles(q, data);
      if constexpr (f == Format::Q5_K) store32(data + 256, bits);
    }
  }
}

template <Format f>
void pack_quantised(const uint8_t* in, int64_t stride, int rows, int64_t cols, uint8_t* out) {
  constexpr PanelLayout layout = panel_layout(f);
  const FormatInfo& info = format_info(f);
  const int64_t blocks = cols / info.block_size, blocks_of_group = layout.group_inputs / info.block_size;
  for (int64_t b = 0; b < blocks; b++) {
    uint8_t* group = out + b / blocks_of_group * layout.group_bytes;
    for (int r = 0; r < rows; r++) {
      const uint8_t* block = in + r * stride + b * info.block_bytes;
      if constexpr (f == Format::NVFP4) {
        pack_nvfp4(block, r, group);
      } else if constexpr (f == Format::Q2_K) {
        pack_q2_k(block, r, group);
      } else if constexpr (f == Format::Q1_0) {
        pack_q1_0(block, r, group);
      } else if constexpr (f > Format::NVFP4 && layout.grouped()) {
        pack_integers<f>(block, r, group);
      } else if constexpr (layout.grouped()) {
        pack_superblock<f>(block, r, group);
      } else {
        pack_block<f>(block, b, r, group);
      }
    }
  }
}

/// Transposes values of `size` bytes (BF16: pairs of them).
template <int size>
void pack_float(const uint8_t* in, int64_t stride, int rows, int64_t row_bytes, uint8_t* out) {
  const int64_t whole = row_bytes / size;
  constexpr int64_t kStep = 16;  // values of a row at a time: a cache line or half of one
  for (int64_t k0 = 0; k0 < whole; k0 += kStep) {
    const int64_t k1 = std::min(whole, k0 + kStep);
    for (int r = 0; r < rows; r++) {
      const uint8_t* row = in + r * stride;
      for (int64_t k = k0; k < k1; k++) std::memcpy(out + (k * 32 + r) * size, row + k * size, size);
    }
  }
  if (const int64_t rest = row_bytes - whole * size) {
    for (int r = 0; r < rows; r++) {
      std::memcpy(out + (whole * 32 + r) * size, in + r * stride + whole * size, static_cast<size_t>(rest));
    }
  }
}

/// Rows of f32 scale, 64 bytes.
void pack_float8_64(const uint8_t* in, int64_t stride, int rows, int64_t cols, uint8_t* out) {
  for (int64_t b = 0; b < cols / 64; b++, in += 68, out += 2176) {
    for (int r = 0; r < rows; r++) {
      std::memcpy(out + 4 * r, in + r * stride, 4);
      for (int k = 0; k < 64; k++) out[128 + 32 * k + r] = in[r * stride + 4 + k];
    }
  }
}

void pack_panel(Format format, const uint8_t* in, int64_t stride, int rows, int64_t cols, uint8_t* out) {
  switch (format) {
    case Format::F32:
      return pack_float<4>(in, stride, rows, stride, out);
    case Format::F16:
      return pack_float<2>(in, stride, rows, stride, out);
    case Format::BF16:
      return pack_float<4>(in, stride, rows, stride, out);
    case Format::Q4_0:
      return pack_quantised<Format::Q4_0>(in, stride, rows, cols, out);
    case Format::Q4_1:
      return pack_quantised<Format::Q4_1>(in, stride, rows, cols, out);
    case Format::Q5_0:
      return pack_quantised<Format::Q5_0>(in, stride, rows, cols, out);
    case Format::Q5_1:
      return pack_quantised<Format::Q5_1>(in, stride, rows, cols, out);
    case Format::Q8_0:
      return pack_quantised<Format::Q8_0>(in, stride, rows, cols, out);
    case Format::Q4_K:
      return pack_quantised<Format::Q4_K>(in, stride, rows, cols, out);
    case Format::Q5_K:
      return pack_quantised<Format::Q5_K>(in, stride, rows, cols, out);
    case Format::Q6_K:
      return pack_quantised<Format::Q6_K>(in, stride, rows, cols, out);
    case Format::IQ4_NL:
      return pack_quantised<Format::IQ4_NL>(in, stride, rows, cols, out);
    case Format::MXFP4:
      return pack_quantised<Format::MXFP4>(in, stride, rows, cols, out);
    case Format::NVFP4:
      return pack_quantised<Format::NVFP4>(in, stride, rows, cols, out);
    case Format::Q2_K:
      return pack_quantised<Format::Q2_K>(in, stride, rows, cols, out);
    case Format::Q3_K:
      return pack_quantised<Format::Q3_K>(in, stride, rows, cols, out);
    case Format::IQ4_XS:
      return pack_quantised<Format::IQ4_XS>(in, stride, rows, cols, out);
    case Format::TQ1_0:
      return pack_quantised<Format::TQ1_0>(in, stride, rows, cols, out);
    case Format::TQ2_0:
      return pack_quantised<Format::TQ2_0>(in, stride, rows, cols, out);
    case Format::IQ2_XXS:
      return pack_quantised<Format::IQ2_XXS>(in, stride, rows, cols, out);
    case Format::IQ2_XS:
      return pack_quantised<Format::IQ2_XS>(in, stride, rows, cols, out);
    case Format::IQ2_S:
      return pack_quantised<Format::IQ2_S>(in, stride, rows, cols, out);
    case Format::IQ3_XXS:
      return pack_quantised<Format::IQ3_XXS>(in, stride, rows, cols, out);
    case Format::IQ3_S:
      return pack_quantised<Format::IQ3_S>(in, stride, rows, cols, out);
    case Format::IQ1_S:
      return pack_quantised<Format::IQ1_S>(in, stride, rows, cols, out);
    case Format::IQ1_M:
      return pack_quantised<Format::IQ1_M>(in, stride, rows, cols, out);
    case Format::Q1_0:
      return pack_quantised<Format::Q1_0>(in, stride, rows, cols, out);
    case Format::F8_E4M3:
      return pack_float<1>(in, stride, rows, stride, out);
    case Format::F8_E4M3_64:
      return pack_float8_64(in, stride, rows, cols, out);
    case Format::Q4_Z:
      return pack_quantised<Format::Q4_Z>(in, stride, rows, cols, out);
  }
}

}  // namespace

size_t packed_bytes(const WeightView& weight, bool lookup_only) {
  if (lookup_only) return 0;
  const int64_t panel_rows = panel_layout(weight.format).rows;
  const auto panels = static_cast<size_t>((weight.rows + panel_rows - 1) / panel_rows);
  const bool scaled = weight.scale || panel_factor(weight.format) != 1;
  return PanelMemory::rounded(panels * static_cast<size_t>(panel_bytes(weight.format, weight.cols))) +
         (scaled ? static_cast<size_t>(weight.rows) * sizeof(float) : 0);
}

std::unique_ptr<DeviceWeight> pack_weight(ThreadPool& pool, const WeightView& weight, Isa, bool lookup_only) {
  const FormatInfo& info = format_info(weight.format);
  if (weight.rows < 1 || weight.cols < 1 || weight.cols % info.block_size ||
      (!weight.data && !weight.source)) {
    fail_load(
        "A %s weight of %lld x %lld values cannot be packed: rows must be positive and columns a multiple of "
        "%d.",
        info.name, static_cast<long long>(weight.rows), static_cast<long long>(weight.cols), info.block_size);
  }
  const PanelLayout layout = panel_layout(weight.format);
  const int64_t stride = row_bytes(weight.format, weight.cols);
  const int64_t panels = lookup_only ? 0 : (weight.rows + layout.rows - 1) / layout.rows;
  const int64_t panel_stride = panel_bytes(weight.format, weight.cols);
  size_t bytes = 0;
  if (__builtin_mul_overflow(panels, panel_stride, &bytes)) {
    fail_load("A %s weight of %lld x %lld values exceeds the address space.", info.name,
              static_cast<long long>(weight.rows), static_cast<long long>(weight.cols));
  }
  auto packed = std::make_unique<PackedWeight>(weight, bytes);
  packed->format = weight.format;
  packed->rows = weight.rows;
  packed->cols = weight.cols;
  packed->bytes = packed->memory.bytes();
  packed->panels = panels;
  packed->panel_stride = panel_stride;
  if (panels == 0) return packed;
  if (const float factor = panel_factor(weight.format); weight.scale || factor != 1) {
    packed->scale = weight.scale ? *weight.scale : std::vector<float>{1};
    packed->scale.resize(static_cast<size_t>(weight.rows), packed->scale.front());
    for (float& scale : packed->scale) scale *= factor;
    packed->bytes += packed->scale.size() * sizeof(float);
  }

  std::atomic<int64_t> next{0};
  const int64_t step = std::max<int64_t>(1, (int64_t{256} << 10) / panel_stride);
  std::mutex mutex;
  std::exception_ptr fault;
  std::atomic<bool> failed{false};
  pool.run([&](int) {
    std::vector<uint8_t> made, panel;
    for (int64_t p = next.fetch_add(step); p < panels && !failed; p = next.fetch_add(step)) {
      const int64_t first = p * layout.rows, last = std::min(weight.rows, (p + step) * layout.rows);
      const uint8_t* in = nullptr;
      try {
        if (weight.source) {
          made.resize(static_cast<size_t>((last - first) * stride));
          weight.source->read(first, last - first, made.data());
          in = made.data();
        } else {
          in = weight.data + first * stride;
          if (weight.format == Format::F8_E4M3) checks::fp8_codes(weight, first, last - first, in);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        fault = std::current_exception();
        failed = true;
        return;
      }
      for (int64_t row = first; row < last; row += layout.rows) {
        const int rows = static_cast<int>(std::min<int64_t>(layout.rows, last - row));
        const uint8_t* begin = in + (row - first) * stride;
        if (!weight.source) {
          // The file is read in one run: the rows of a panel are too many streams for the hardware to
          // foresee.
          panel.assign(begin, begin + rows * stride);
          begin = panel.data();
        }
        pack_panel(weight.format, begin, stride, rows, weight.cols,
                   packed->memory.data() + row / layout.rows * panel_stride);
      }
      // Else a large weight is in memory twice while it is packed.
      if (weight.source) {
        weight.source->release(first, last - first);
      } else if (weight.file) {
        weight.file->release(in, static_cast<size_t>((last - first) * stride));
      }
    }
  });
  if (fault) std::rethrow_exception(fault);
  return packed;
}

}  // namespace vllm::cpu
