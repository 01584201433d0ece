// The paged KV cache and attention of the Vulkan device.
#include <algorithm>

#include "base/error.h"
#include "device/checks.h"
#include "device/vulkan/vulkan_device.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128;
constexpr int kSplitKeys = 256;         // shaders/split.glsl has it too
constexpr int kMaxHeadDim = 512;        // shaders/attention.comp
constexpr int64_t kEnoughGroups = 512;  // workgroups that fill a device

int64_t words(const KvLayerSpec& layer, KvFormat format) {
  return format == KvFormat::BF16 ? (layer.head_dim + 1) / 2 : layer.head_dim;
}

/// Keys and values of each layer in buffers of their own, laid out as shaders/write_kv.comp says.
class VulkanKvCache final : public KvCache {
 public:
  VulkanKvCache(VulkanDevice& device, const KvCacheSpec& wanted) {
    spec = wanted;
    for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
      if (spec.layers[layer].head_dim > kMaxHeadDim)
        fail_load("A KV cache layer has heads of %d values; the Vulkan device takes up to %d.",
                  spec.layers[layer].head_dim, kMaxHeadDim);
      const int64_t count = spec.num_blocks * block_words(layer);
      if (count > INT32_MAX)
        fail_load(
            "A KV pool of %d blocks needs %.0f MB for the keys of a layer; the Vulkan device takes 8590 MB.",
            spec.num_blocks, static_cast<double>(count) * 4e-6);
      for (auto* list : {&keys, &values}) {
        list->push_back(std::make_unique<VulkanBuffer>(device, static_cast<size_t>(count) * 4));
        bytes += list->back()->bytes();
      }
    }
  }
  /// Of the keys of a block; the values take as many.
  int64_t block_words(size_t layer) const {
    const KvLayerSpec& l = spec.layers[layer];
    return int64_t{spec.block_size} * l.kv_heads * words(l, spec.format);
  }

  std::vector<std::unique_ptr<VulkanBuffer>> keys, values;
};

Use all_of(const std::unique_ptr<VulkanBuffer>& buffer, bool write) {
  return {buffer->range.address, buffer->range.bytes, 1, 0, write};
}

uint32_t is_bf16(const KvCache& cache) { return cache.spec.format == KvFormat::BF16; }

}  // namespace

std::unique_ptr<KvCache> VulkanDevice::make_kv_cache(const KvCacheSpec& spec) {
  checks::kv_cache(spec);
  if (spec.format == KvFormat::Q8_0)
    fail_load("Vulkan devices have no KV cache of q8_0; set kv_cache_dtype to bf16 or f32.");
  return std::make_unique<VulkanKvCache>(*this, spec);
}

// The whole block: what no token is at yet is never read.
void VulkanDevice::copy_kv(KvCache& cache, int from, int to, int tokens) {
  checks::copy_kv(cache, from, to, tokens);
  if (from == to) return;
  auto& own = static_cast<VulkanKvCache&>(cache);
  for (size_t layer = 0; layer < own.keys.size(); ++layer) {
    const size_t size = static_cast<size_t>(own.block_words(layer)) * 4;
    for (const auto* list : {&own.keys, &own.values}) {
      const Range& all = (*list)[layer]->range;
      recorder_.copy(all.part(static_cast<size_t>(from) * size, size),
                     all.part(static_cast<size_t>(to) * size, size));
    }
  }
}

void VulkanDevice::write_kv(KvCache& cache, int layer, const Tensor& k, const Tensor& v) {
  checks::write_kv(*batch_, cache, layer, k, v);
  auto& own = static_cast<VulkanKvCache&>(cache);
  const auto& keys = own.keys[static_cast<size_t>(layer)];
  const auto& values = own.values[static_cast<size_t>(layer)];
  const KvLayerSpec& spec = cache.spec.layers[static_cast<size_t>(layer)];
  const parameters::WriteKv p{address(k),
                              address(v),
                              keys->range.address,
                              values->range.address,
                              kv_slots(cache.spec.block_size),
                              int32_t(k.stride),
                              int32_t(v.stride),
                              spec.kv_heads,
                              spec.head_dim,
                              cache.spec.block_size};
  run(Shader::write_kv, {64, is_bf16(cache)}, p, {spec.kv_heads, k.rows},
      {reads(k), reads(v), all_of(keys, true), all_of(values, true)});
}

void VulkanDevice::attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                             const Tensor& out) {
  checks::attention(*batch_, cache, layer, q, spec, out);
  const auto& own = static_cast<const VulkanKvCache&>(cache);
  const auto& keys = own.keys[static_cast<size_t>(layer)];
  const auto& values = own.values[static_cast<size_t>(layer)];
  int64_t most = 0;  // splits of a row
  for (const int position : batch_->positions) {
    const int oldest = spec.window > 0 ? std::max(0, position - spec.window + 1) : 0;
    most = std::max<int64_t>(most, position / kSplitKeys + 1 - oldest / kSplitKeys);
  }
  // Few rows of long sequences do not fill a device unless the splits of a row run side by side. The result
  // is the same to the bit.
  const bool apart = most > 1 && q.rows * spec.heads < kEnoughGroups;
  const int64_t splits = apart ? most : 0;
  const Range partial =
      apart ? scratch(static_cast<size_t>(q.rows * spec.heads * splits * (spec.head_dim + 2)) * 4) : Range{};
  const parameters::Attention p{address(q),          address(out),
                                keys->range.address, values->range.address,
                                inputs_.positions,   inputs_.sequences,
                                inputs_.block_table, partial.address,
                                int32_t(q.stride),   int32_t(out.stride),
                                spec.heads,          spec.heads / spec.kv_heads,
                                spec.head_dim,       cache.spec.block_size,
                                batch_->max_blocks,  spec.window,
                                int32_t(splits),     spec.scale,
                                spec.softcap};
  const Use partial_use{partial.address, partial.bytes, 1, 0, true};
  const Shader shader = gpu().features.storage16 ? Shader::attention16 : Shader::attention;
  run(shader, {kGroup, is_bf16(cache)}, p, {spec.heads, q.rows, apart ? splits : 1},
      {reads(q), all_of(keys, false), all_of(values, false), apart ? partial_use : writes(out)});
  if (!apart) return;
  const parameters::AttentionCombine combine{partial.address,     address(out), inputs_.positions,
                                             int32_t(out.stride), spec.heads,   spec.head_dim,
                                             int32_t(splits),     spec.window};
  run(Shader::attention_combine, {kGroup}, combine, {spec.heads, q.rows}, {partial_use, writes(out)});
}

}  // namespace vllm::vulkan
