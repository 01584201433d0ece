// The paged KV cache and attention of the reference device.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "device/checks.h"
#include "device/host_memory.h"
#include "device/reference/reference_device.h"

namespace vllm {
namespace {

/// A head's keys or values of a token as the cache gives them back.
void store_head(KvFormat format, const float* x, int head_dim, float* out) {
  if (format == KvFormat::F32) std::copy_n(x, head_dim, out);
  if (format == KvFormat::BF16)
    for (int d = 0; d < head_dim; ++d) out[d] = bf16_to_f32(f32_to_bf16(x[d]));
  if (format != KvFormat::Q8_0) return;
  for (int begin = 0; begin < head_dim; begin += 32) {
    const int end = std::min(head_dim, begin + 32);
    float top = 0;
    for (int d = begin; d < end; ++d) top = std::max(top, std::fabs(x[d]));
    // The scale is a bf16 that is not below a 127th of the largest number, zero below 1e-30.
    const float exact = top / 127.0f;
    float step = bf16_to_f32(f32_to_bf16(exact));
    if (step < exact) step = bf16_to_f32(static_cast<uint16_t>(f32_to_bf16(exact) + 1));
    if (!(step >= 1e-30f)) step = 0;
    const float inverse = step > 0 ? 1.0f / step : 0.0f;
    for (int d = begin; d < end; ++d) out[d] = std::nearbyint(x[d] * inverse) * step;
  }
}

/// Keys and values of a layer: [num_blocks][block_size][kv_heads][head_dim] f32, rounded as the spec says.
class ReferenceKvCache final : public KvCache {
 public:
  explicit ReferenceKvCache(const KvCacheSpec& wanted) {
    spec = wanted;
    for (const KvLayerSpec& layer : spec.layers) {
      const size_t values =
          static_cast<size_t>(spec.num_blocks) * spec.block_size * layer.kv_heads * layer.head_dim;
      keys_.emplace_back(values);
      values_.emplace_back(values);
      bytes += 2 * values * sizeof(float);
    }
  }

  float* key(int layer, int block, int slot, int head) {
    return keys_[layer].data() + at(layer, block, slot, head);
  }
  float* value(int layer, int block, int slot, int head) {
    return values_[layer].data() + at(layer, block, slot, head);
  }
  const float* key(int layer, int block, int slot, int head) const {
    return keys_[layer].data() + at(layer, block, slot, head);
  }
  const float* value(int layer, int block, int slot, int head) const {
    return values_[layer].data() + at(layer, block, slot, head);
  }

 private:
  size_t at(int layer, int block, int slot, int head) const {
    const KvLayerSpec& l = spec.layers[layer];
    return ((static_cast<size_t>(block) * spec.block_size + slot) * l.kv_heads + head) * l.head_dim;
  }
  std::vector<std::vector<float>> keys_, values_;
};

}  // namespace

std::unique_ptr<KvCache> ReferenceDevice::make_kv_cache(const KvCacheSpec& spec) {
  checks::kv_cache(spec);
  return std::make_unique<ReferenceKvCache>(spec);
}

void ReferenceDevice::copy_kv(KvCache& cache, int from, int to, int tokens) {
  checks::copy_kv(cache, from, to, tokens);
  auto& kv = static_cast<ReferenceKvCache&>(cache);
  for (int layer = 0; layer < static_cast<int>(kv.spec.layers.size()); ++layer) {
    const auto [heads, head_dim] = kv.spec.layers[layer];
    const size_t bytes = sizeof(float) * tokens * heads * head_dim;
    std::memmove(kv.key(layer, to, 0, 0), kv.key(layer, from, 0, 0), bytes);
    std::memmove(kv.value(layer, to, 0, 0), kv.value(layer, from, 0, 0), bytes);
  }
}

void ReferenceDevice::write_kv(KvCache& cache, int layer, const Tensor& k, const Tensor& v) {
  checks::write_kv(*batch_, cache, layer, k, v);
  auto& kv = static_cast<ReferenceKvCache&>(cache);
  const auto [heads, head_dim] = kv.spec.layers[layer];
  for (int s = 0; s < batch_->sequences(); ++s) {
    for (int t = batch_->seq_start[s]; t < batch_->seq_start[s + 1]; ++t) {
      const int position = batch_->positions[t];
      const int block = batch_->blocks_of(s)[position / kv.spec.block_size],
                slot = position % kv.spec.block_size;
      for (int h = 0; h < heads; ++h) {
        store_head(kv.spec.format, host_data(k) + t * k.stride + h * head_dim, head_dim,
                   kv.key(layer, block, slot, h));
        store_head(kv.spec.format, host_data(v) + t * v.stride + h * head_dim, head_dim,
                   kv.value(layer, block, slot, h));
      }
    }
  }
}

void ReferenceDevice::attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                                const Tensor& out) {
  checks::attention(*batch_, cache, layer, q, spec, out);
  const auto& kv = static_cast<const ReferenceKvCache&>(cache);
  const int head_dim = spec.head_dim, block_size = kv.spec.block_size;
  for (int s = 0; s < batch_->sequences(); ++s) {
    const int32_t* blocks = batch_->blocks_of(s);
    for (int t = batch_->seq_start[s]; t < batch_->seq_start[s + 1]; ++t) {
      const int position = batch_->positions[t];
      const int first = spec.window > 0 ? std::max(0, position - spec.window + 1) : 0;
      for (int h = 0; h < spec.heads; ++h) {
        const int kv_head = h / (spec.heads / spec.kv_heads);
        const float* query = host_data(q) + t * q.stride + h * head_dim;

        std::vector<double> weights;
        double highest = -std::numeric_limits<double>::infinity();
        for (int j = first; j <= position; ++j) {
          const float* key = kv.key(layer, blocks[j / block_size], j % block_size, kv_head);
          double score = 0;
          for (int d = 0; d < head_dim; ++d) score += static_cast<double>(query[d]) * key[d];
          score *= spec.scale;
          if (spec.softcap > 0) score = spec.softcap * std::tanh(score / spec.softcap);
          weights.push_back(score);
          highest = std::max(highest, score);
        }
        double total = 0;
        for (double& w : weights) total += w = std::exp(w - highest);

        std::vector<double> sum(head_dim, 0.0);
        for (int j = first; j <= position; ++j) {
          const float* value = kv.value(layer, blocks[j / block_size], j % block_size, kv_head);
          for (int d = 0; d < head_dim; ++d) sum[d] += weights[j - first] * value[d];
        }
        for (int d = 0; d < head_dim; ++d)
          host_data(out)[t * out.stride + h * head_dim + d] = static_cast<float>(sum[d] / total);
      }
    }
  }
}

}  // namespace vllm
