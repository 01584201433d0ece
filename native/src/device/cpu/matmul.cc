#include "device/cpu/matmul.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <new>
#include <vector>

#include "base/error.h"
#include "device/cpu/matmul_kernels.h"
#include "device/cpu/pack.h"
#include "device/cpu/pack_layout.h"
#include "device/cpu/row_groups.h"

namespace vllm::cpu {
namespace {

#if defined(__x86_64__)
/// `add` runs instructions of its set.
template <void (*add)(Kernels&)>
const Kernels& with(const Kernels& base) {
  static const Kernels kernels = [&] {
    Kernels copy = base;
    add(copy);
    return copy;
  }();
  return kernels;
}
#endif

const Kernels& kernels_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::Amx:
      return with<add_amx_blocks>(with<add_amx_groups>(with<add_amx>(kernels_of(Isa::Avx512Bf16))));
    case Isa::Avx512Bf16:
      return with<add_avx512bf16>(kernels_of(Isa::Avx512Vnni));
    case Isa::Avx512Vnni:
      return with<add_avx512vnni>(kAvx512Kernels);
    case Isa::Avx512:
      return kAvx512Kernels;
    case Isa::AvxVnni:
      return with<add_avxvnni>(kAvx2Kernels);
    case Isa::Avx2:
      return kAvx2Kernels;
#elif defined(__aarch64__)
    case Isa::NeonBf16:
      return kNeonBf16Kernels;
    case Isa::NeonDotprod:
      return kNeonDotprodKernels;
#endif
    default:
      return kBaselineKernels;
  }
}

/// 64-byte aligned, grows, keeps nothing when it grows.
class AlignedBuffer {
 public:
  ~AlignedBuffer() { release(); }
  void reserve(size_t bytes) {
    if (bytes <= bytes_) return;
    release();
    bytes = std::max(bytes + bytes / 4, size_t{4096});
    data_ = ::operator new(bytes, std::align_val_t{64}, std::nothrow);
    if (!data_)
      fail_runtime("The memory for the activations of a matrix product, %zu bytes, cannot be allocated.",
                   bytes);
    bytes_ = bytes;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void release() {
    ::operator delete(data_, std::align_val_t{64});
    data_ = nullptr;
    bytes_ = 0;
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

struct TokenTile {
  int64_t first;
  TileShape shape;
  int tokens() const { return kTileTokens[shape]; }
};

/// One form of the activations of a call.
struct Activations {
  bool used = false;
  std::vector<TokenTile> tiles;
  std::vector<size_t> block_start;  // index of the first tile of each token block, and the end
  AlignedBuffer x, scale, start, sum;
  int64_t token_bytes = 0;  // of x
  int64_t blocks = 0;       // of 32 inputs
};

bool is_int8(Scheme scheme) { return scheme >= Scheme::Int8x32; }

/// Bytes of a token's activations; rows of f32 are padded to an even number of inputs, of bf16 to whole
/// vectors.
int64_t token_bytes(Scheme scheme, int64_t cols) {
  if (is_int8(scheme)) return cols;
  return scheme == Scheme::BF16 ? (cols + 31) / 32 * 64 : (cols + 1) / 2 * 8;
}

/// Few tokens meet each panel as it comes from memory, so the shapes with prefetch serve them.
constexpr int64_t kFewTokens = 16;

/// Whether it pays to prefetch for fewer than 8 of them: Intel's processors look ahead to the end of a page.
bool few_read_ahead() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel");
  return intel;
#else
  return false;
#endif
}

TileShape next_shape(const Kernels& kernels, Scheme scheme, int64_t rows, int64_t left) {
  const bool int8 = is_int8(scheme), by_16 = kernels.by_16[static_cast<int>(scheme)];
  if (by_16 ? left >= 16 : int8 && rows == 16) return kTile16;
  if (!int8 && !by_16 && left >= 12) return kTile12;
  const bool few = rows <= kFewTokens, ahead = few && few_read_ahead();
  if (left >= 8) return ahead || (few && int8) ? kTile8Ahead : kTile8;
  if (left >= 4) return ahead ? kTile4Ahead : kTile4;
  if (left >= 2) return ahead ? kTile2Ahead : kTile2;
  return ahead ? kTile1Ahead : kTile1;
}

/// Cuts the rows into token blocks, whose activations are meant to stay in the second-level cache, and those
/// into tiles.
void plan(Activations& a, const Kernels& kernels, Scheme scheme, int64_t rows, int64_t cols,
          int64_t block_rows) {
  a.used = true;
  a.token_bytes = token_bytes(scheme, cols);
  a.blocks = cols / 32;
  a.tiles.clear();
  a.block_start.clear();
  for (int64_t begin = 0; begin < rows; begin += block_rows) {
    a.block_start.push_back(a.tiles.size());
    const int64_t end = std::min(rows, begin + block_rows);
    for (int64_t first = begin; first < end;) {
      a.tiles.push_back({first, next_shape(kernels, scheme, rows, end - first)});
      first += a.tiles.back().tokens();
    }
  }
  a.block_start.push_back(a.tiles.size());
  a.x.reserve(static_cast<size_t>(rows * a.token_bytes));
  if (is_int8(scheme)) {
    const size_t values = static_cast<size_t>(rows * a.blocks);
    a.scale.reserve(values * sizeof(float));
    a.start.reserve(values * 3 * sizeof(int32_t));
    a.sum.reserve(values * sizeof(float));
  }
}

ActivationTile tile_of(const Activations& a, const TokenTile& tile) {
  const int64_t at = tile.first * a.blocks;
  return {a.x.as<uint8_t>() + tile.first * a.token_bytes, a.scale.as<float>() + at,
          a.start.as<int32_t>() + 3 * at, a.sum.as<float>() + at};
}

}  // namespace

struct MatmulScratch::Impl {
  Activations activations[kSchemes];
  AlignedBuffer ordered;  // inputs in the order of a weight's columns
};

MatmulScratch::MatmulScratch() : impl_(std::make_unique<Impl>()) {}
MatmulScratch::~MatmulScratch() = default;

size_t MatmulScratch::bytes() const {
  size_t total = impl_->ordered.bytes();
  for (const Activations& a : impl_->activations)
    total += a.x.bytes() + a.scale.bytes() + a.start.bytes() + a.sum.bytes();
  return total;
}

namespace {

/// The product of one call, ready to be shared out.
struct Job {
  const Kernels& kernels;
  std::span<const DeviceWeight* const> weights;
  Activations* activations;
  const float* bias;
  bool accumulate;
  float* out;
  int64_t ldo;

  /// Panels [begin, end) of weight w, whose outputs start at `column`, times the tiles of a token block.
  void panels(size_t w, int64_t column, int64_t begin, int64_t end, size_t block) const {
    const auto& weight = static_cast<const PackedWeight&>(*weights[w]);
    const int format = static_cast<int>(weight.format);
    const int panel_rows = panel_layout(weight.format).rows;
    const int scheme = static_cast<int>(kernels.scheme[format]);
    const Activations& a = activations[scheme];
    TileProduct product{};
    product.cols = weight.cols;
    product.ldo = ldo;
    product.accumulate = accumulate;
    const Codebook book = codebook(weight.format);
    product.codebook = &book;
    for (int64_t p = begin; p < end; p++) {
      const int64_t row = p * panel_rows;
      product.panel = weight.memory.data() + p * weight.panel_stride;
      product.rows = static_cast<int>(std::min<int64_t>(panel_rows, weight.rows - row));
      product.bias = bias ? bias + column + row : nullptr;
      product.scale = weight.scale.empty() ? nullptr : weight.scale.data() + row;
      const size_t end = a.block_start[block + 1];
      for (size_t i = a.block_start[block], next; i < end; i = next) {
        const TileShape shape = a.tiles[i].shape;
        next = i + 1;
        if (kernels.by_16[scheme] && shape == kTile16) {
          while (next < end && a.tiles[next].shape == shape) next++;
        }
        product.tile = tile_of(a, a.tiles[i]);
        product.tiles = static_cast<int>(next - i);
        product.out = out + a.tiles[i].first * ldo + column + row;
        kernels.product[format][shape](product);
      }
    }
    if (kernels.release) kernels.release();
  }

  /// The part of `thread` when all panels are cut into neighbouring runs of equal bytes.
  void part(int thread, int threads) const {
    int64_t total = 0;
    for (const DeviceWeight* weight : weights) total += packed_bytes(weight);
    const int64_t begin = total * thread / threads, end = total * (thread + 1) / threads;
    int64_t at = 0, column = 0;
    for (size_t w = 0; w < weights.size(); w++) {
      const auto& weight = static_cast<const PackedWeight&>(*weights[w]);
      const auto cut = [&](int64_t target) {
        return std::clamp<int64_t>((target - at + weight.panel_stride - 1) / weight.panel_stride, 0,
                                   weight.panels);
      };
      panels(w, column, cut(begin), cut(end), 0);
      at += packed_bytes(&weight);
      column += weight.rows;
    }
  }

  /// Takes (token block, panel) items until none is left.
  void take(std::atomic<int64_t>& next, int64_t panels_of_all, int64_t items) const {
    for (int64_t item = next.fetch_add(1); item < items; item = next.fetch_add(1)) {
      int64_t p = item % panels_of_all, column = 0;
      size_t w = 0;
      for (; p >= packed(w).panels; w++) {
        p -= packed(w).panels;
        column += packed(w).rows;
      }
      panels(w, column, p, p + 1, static_cast<size_t>(item / panels_of_all));
    }
  }

  const PackedWeight& packed(size_t w) const { return static_cast<const PackedWeight&>(*weights[w]); }
  static int64_t packed_bytes(const DeviceWeight* weight) {
    const auto& packed = static_cast<const PackedWeight&>(*weight);
    return packed.panels * packed.panel_stride;
  }
};

/// Below this many values to read, waking other threads costs more than it saves.
constexpr int64_t kAloneValues = 16384;

/// The product with weights whose columns are in the order of x's.
void multiply(ThreadPool& pool, Isa isa, std::span<const DeviceWeight* const> weights, const float* x,
              int64_t ldx, int64_t rows, const float* bias, bool accumulate, float* out, int64_t ldo,
              Activations* activations) {
  const Kernels& kernels = kernels_of(isa);
  const int64_t cols = weights[0]->cols;
  Job job{kernels, weights, activations, bias, accumulate, out, ldo};
  int64_t panels = 0, bytes = 0;
  bool used[kSchemes] = {};
  for (const DeviceWeight* weight : weights) {
    const auto& packed = static_cast<const PackedWeight&>(*weight);
    if (packed.panels == 0) fail_runtime("A weight packed for lookups only cannot be multiplied with.");
    if (packed.cols != cols) {
      fail_runtime("Stacked weights have %lld and %lld columns; they must be equal.",
                   static_cast<long long>(cols), static_cast<long long>(packed.cols));
    }
    used[static_cast<int>(kernels.scheme[static_cast<int>(packed.format)])] = true;
    panels += packed.panels;
    bytes += Job::packed_bytes(weight);
  }

  // Token blocks of one length for all schemes, set by the widest in use; a multiple of the tiles of 8,
  // 12 and 16.
  int64_t widest = 1;
  for (int s = 0; s < kSchemes; s++) {
    if (used[s]) widest = std::max(widest, token_bytes(static_cast<Scheme>(s), cols));
  }
  constexpr int64_t kBlockBytes = int64_t{768} << 10;
  const int64_t blocks = (rows - 1) / std::max<int64_t>(96, kBlockBytes / widest) + 1;
  const int64_t block_rows = ((rows - 1) / blocks / 48 + 1) * 48;
  int64_t tiles = 0;
  for (int s = 0; s < kSchemes; s++) {
    Activations& a = activations[s];
    a.used = used[s];
    if (used[s]) plan(a, kernels, static_cast<Scheme>(s), rows, cols, block_rows);
    if (used[s]) tiles += static_cast<int64_t>(a.tiles.size());
  }
  const auto prepare = [&](int64_t tile) {
    for (int s = 0; s < kSchemes; s++) {
      const Activations& a = activations[s];
      if (!a.used) continue;
      if (tile >= static_cast<int64_t>(a.tiles.size())) {
        tile -= static_cast<int64_t>(a.tiles.size());
        continue;
      }
      const TokenTile& t = a.tiles[static_cast<size_t>(tile)];
      kernels.prepare[s](x + t.first * ldx, ldx, t.tokens(), cols, tile_of(a, t));
      return;
    }
  };
  if (tiles == 1 || rows * cols < kAloneValues) {
    for (int64_t i = 0; i < tiles; i++) prepare(i);
  } else {
    std::atomic<int64_t> next{0};
    pool.run([&](int) {
      for (int64_t i = next.fetch_add(1); i < tiles; i = next.fetch_add(1)) prepare(i);
    });
  }

  if (rows <= kFewTokens && bytes * rows < kAloneValues) {
    job.part(0, 1);
  } else if (rows <= kFewTokens) {
    pool.run([&](int thread) { job.part(thread, pool.threads()); });
  } else {
    std::atomic<int64_t> next{0};
    const int64_t items = panels * ((rows - 1) / block_rows + 1);
    pool.run([&](int) { job.take(next, panels, items); });
  }
}

const std::vector<int32_t>* order_of(const DeviceWeight* weight) {
  return static_cast<const PackedWeight*>(weight)->view.order.get();
}

/// out[c] = row[order[c]]
void put_in_order(const std::vector<int32_t>& order, const float* row, float* out) {
  for (size_t c = 0; c < order.size(); c++) out[c] = row[order[c]];
}

void reorder(ThreadPool& pool, const std::vector<int32_t>& order, const float* x, int64_t ldx, int64_t rows,
             float* out) {
  const auto cols = static_cast<int64_t>(order.size());
  const auto part = [&](Range range) {
    for (int64_t t = range.begin; t < range.end; t++) put_in_order(order, x + t * ldx, out + t * cols);
  };
  if (rows * cols < kAloneValues) {
    part({0, rows});
  } else {
    pool.run([&](int thread) { part(share(rows, thread, pool.threads())); });
  }
}

}  // namespace

void matmul(ThreadPool& pool, Isa isa, std::span<const DeviceWeight* const> weights, const float* x,
            int64_t ldx, int64_t rows, const float* bias, bool accumulate, float* out, int64_t ldo,
            MatmulScratch& scratch) {
  if (rows == 0) return;
  // Neighbouring weights of one order of columns share a product.
  int64_t column = 0;
  for (size_t begin = 0, end = 0; begin < weights.size(); begin = end) {
    const std::vector<int32_t>* const order = order_of(weights[begin]);
    int64_t outputs = 0;
    for (; end < weights.size() && order_of(weights[end]) == order; end++) outputs += weights[end]->rows;
    const float* inputs = x;
    int64_t stride = ldx;
    if (order) {
      stride = weights[begin]->cols;
      scratch.impl_->ordered.reserve(static_cast<size_t>(rows * stride) * sizeof(float));
      float* const ordered = scratch.impl_->ordered.as<float>();
      reorder(pool, *order, x, ldx, rows, ordered);
      inputs = ordered;
    }
    multiply(pool, isa, weights.subspan(begin, end - begin), inputs, stride, rows,
             bias ? bias + column : nullptr, accumulate, out + column, ldo, scratch.impl_->activations);
    column += outputs;
  }
}

struct RowGroups::Impl {
  struct Plane {
    Activations activations[kSchemes];
  };
  ThreadPool& pool;
  const Kernels& kernels;
  /// Where the weights of a group have orders of their own, its rows are there once for each: plane 0 is in
  /// the natural order, plane 1 + k in that of weight k of each group.
  std::deque<Plane> planes;
  AlignedBuffer gathered;  // rows of a tile side by side, for each thread
  std::vector<int32_t> start;
  std::vector<const DeviceWeight*> weights;

  size_t weights_of_group() const { return weights.size() / (start.size() - 1); }
  /// That of the rows of a group in a plane; null: the natural one.
  const std::vector<int32_t>* order(size_t plane, size_t group) const {
    return plane == 0 ? nullptr : order_of(weights[group * weights_of_group() + plane - 1]);
  }
  size_t plane(size_t group, const DeviceWeight* weight) const {
    if (!order_of(weight)) return 0;
    const auto first = weights.begin() + static_cast<ptrdiff_t>(group * weights_of_group());
    return 1 + static_cast<size_t>(std::find(first, weights.end(), weight) - first);
  }
  /// Of a (plane, scheme) pair, counted through.
  Activations& form(size_t index) { return planes[index / kSchemes].activations[index % kSchemes]; }
  size_t forms() const { return planes.size() * kSchemes; }
};

RowGroups::RowGroups(ThreadPool& pool, Isa isa) : impl_(new Impl{pool, kernels_of(isa), {}, {}, {}, {}}) {}
RowGroups::~RowGroups() = default;

void RowGroups::prepare(const float* x, int64_t ldx, int64_t cols, const int32_t* row_of,
                        std::span<const int32_t> start, std::span<const DeviceWeight* const> weights) {
  Impl& impl = *impl_;
  const int64_t rows = start.back();
  // Room for any grouping of as many rows, so that a later one takes no memory.
  impl.start.reserve(std::max(start.size(), static_cast<size_t>(rows) + 1));
  impl.start.assign(start.begin(), start.end());
  impl.weights.reserve(
      std::max(weights.size(), weights.size() / (start.size() - 1) * static_cast<size_t>(rows)));
  impl.weights.assign(weights.begin(), weights.end());
  for (size_t f = 0; f < impl.forms(); f++) impl.form(f).used = false;
  for (size_t i = 0; i < weights.size(); i++) {
    const auto& packed = static_cast<const PackedWeight&>(*weights[i]);
    if (packed.panels == 0) fail_runtime("A weight packed for lookups only cannot be multiplied with.");
    const size_t plane = order_of(weights[i]) ? 1 + i % impl.weights_of_group() : 0;
    while (impl.planes.size() <= plane) impl.planes.emplace_back();
    const Scheme scheme = impl.kernels.scheme[static_cast<int>(packed.format)];
    impl.planes[plane].activations[static_cast<int>(scheme)].used = true;
  }
  int64_t tiles = 0;
  for (size_t f = 0; f < impl.forms(); f++) {
    Activations& a = impl.form(f);
    if (!a.used) continue;
    const auto scheme = static_cast<Scheme>(f % kSchemes);
    plan(a, impl.kernels, scheme, rows, cols, rows);
    a.tiles.clear();
    a.tiles.reserve(static_cast<size_t>(rows));
    a.block_start.clear();
    a.block_start.reserve(impl.start.capacity());
    for (size_t g = 0; g + 1 < start.size(); g++) {
      a.block_start.push_back(a.tiles.size());
      for (int64_t first = start[g], end = start[g + 1]; first < end;) {
        a.tiles.push_back({first, next_shape(impl.kernels, scheme, end - start[g], end - first)});
        first += a.tiles.back().tokens();
      }
    }
    a.block_start.push_back(a.tiles.size());
    tiles += static_cast<int64_t>(a.tiles.size());
  }

  constexpr int64_t kMostTokens = 16;  // of a tile
  const int64_t own = kMostTokens * cols;
  impl.gathered.reserve(static_cast<size_t>(own * impl.pool.threads()) * sizeof(float));
  std::atomic<int64_t> next{0};
  const auto part = [&](int thread) {
    float* const gathered = impl.gathered.as<float>() + thread * own;
    for (int64_t item = next.fetch_add(1); item < tiles; item = next.fetch_add(1)) {
      auto index = static_cast<size_t>(item);
      size_t f = 0;
      for (; !impl.form(f).used || index >= impl.form(f).tiles.size(); f++)
        if (impl.form(f).used) index -= impl.form(f).tiles.size();
      const Activations& a = impl.form(f);
      const TokenTile& tile = a.tiles[index];
      const auto group = std::upper_bound(start.begin(), start.end(), tile.first) - start.begin() - 1;
      const std::vector<int32_t>* const order = impl.order(f / kSchemes, static_cast<size_t>(group));
      const auto row = [&](int t) { return x + (row_of ? row_of[tile.first + t] : tile.first + t) * ldx; };
      const float* in = row(0);
      int64_t stride = ldx;
      if (order || (row_of && tile.tokens() > 1)) {
        for (int t = 0; t < tile.tokens(); t++) {
          if (order) {
            put_in_order(*order, row(t), gathered + t * cols);
          } else {
            std::copy_n(row(t), cols, gathered + t * cols);
          }
        }
        in = gathered;
        stride = cols;
      }
      impl.kernels.prepare[f % kSchemes](in, stride, tile.tokens(), cols, tile_of(a, tile));
    }
  };
  if (rows * cols < kAloneValues) {
    part(0);
  } else {
    impl.pool.run(part);
  }
}

void RowGroups::multiply(size_t group, const DeviceWeight& weight, int64_t first, int64_t count, float* out,
                         int64_t ldo) const {
  const auto& packed = static_cast<const PackedWeight&>(weight);
  const DeviceWeight* const list[] = {&weight};
  const int panel_rows = panel_layout(weight.format).rows;
  Activations* const activations = impl_->planes[impl_->plane(group, &weight)].activations;
  const Job job{
      impl_->kernels, list, activations, nullptr, false, out - impl_->start[group] * ldo - first, ldo};
  job.panels(0, 0, first / panel_rows, std::min(packed.panels, (first + count) / panel_rows), group);
}

void embed_row(const DeviceWeight& table, int32_t id, float scale, float* out) {
  const auto& packed = static_cast<const PackedWeight&>(table);
  if (id < 0 || id >= table.rows) {
    fail_argument("Token id %d is outside the embedding table of %lld rows.", id,
                  static_cast<long long>(table.rows));
  }
  packed.view.decode_row(id, out);
  if (scale != 1.0f) {
    for (int64_t k = 0; k < table.cols; k++) out[k] *= scale;
  }
}

}  // namespace vllm::cpu
