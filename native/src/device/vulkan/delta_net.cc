// Gated DeltaNet on the Vulkan device.
#include <algorithm>

#include "base/error.h"
#include "device/checks.h"
#include "device/vulkan/vulkan_device.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kChannelGroup = 64, kValueGroup = 32, kPrepareGroup = 32;
// A dispatch that walks down a whole prompt may take longer than some systems allow, and drivers on the CPU
// limit the turns of its loops. shaders/delta_rule.comp has the rows too.
constexpr int kDeltaRows = 32, kMaxKeyDim = 512;

/// For each layer the histories of all slots, [slots][conv_kernel - 1][conv_cols], and the matrices,
/// [slots][value_heads][key_dim][value_dim].
class VulkanStateCache final : public StateCache {
 public:
  VulkanStateCache(VulkanDevice& device, const StateCacheSpec& wanted) {
    spec = wanted;
    for (const DeltaNetSpec& l : spec.layers) {
      if (l.key_dim > kMaxKeyDim)
        fail_load("A DeltaNet layer has keys of %d values; the Vulkan device takes up to %d.", l.key_dim,
                  kMaxKeyDim);
      for (const int64_t size : {history_size(l), matrices_size(l)})
        if (size * spec.slots > INT32_MAX)
          fail_load(
              "The recurrent state of %d sequences needs %.0f MB for a layer; the Vulkan device takes 8590 "
              "MB.",
              spec.slots, static_cast<double>(size) * spec.slots * 4e-6);
      history.push_back(std::make_unique<VulkanBuffer>(device, bytes_of(history_size(l) * spec.slots)));
      matrices.push_back(std::make_unique<VulkanBuffer>(device, bytes_of(matrices_size(l) * spec.slots)));
      bytes += history.back()->bytes() + matrices.back()->bytes();
    }
  }
  static int64_t history_size(const DeltaNetSpec& l) { return (l.conv_kernel - 1) * l.conv_cols(); }
  static int64_t matrices_size(const DeltaNetSpec& l) { return l.value_cols() * l.key_dim; }
  static size_t bytes_of(int64_t values) { return static_cast<size_t>(values) * sizeof(float); }

  std::vector<std::unique_ptr<VulkanBuffer>> history, matrices;
};

Use all_of(const VulkanBuffer& buffer) { return {buffer.range.address, buffer.range.bytes, 1, 0, true}; }

}  // namespace

std::unique_ptr<StateCache> VulkanDevice::make_state_cache(const StateCacheSpec& spec) {
  checks::state_cache(spec);
  return std::make_unique<VulkanStateCache>(*this, spec);
}

void VulkanDevice::copy_state(StateCache& cache, int from, int to) {
  checks::copy_state(cache, from, to);
  if (from == to) return;
  auto& own = static_cast<VulkanStateCache&>(cache);
  const auto copy = [&](const VulkanBuffer& buffer, int64_t values) {
    const size_t size = VulkanStateCache::bytes_of(values);
    recorder_.copy(buffer.range.part(static_cast<size_t>(from) * size, size),
                   buffer.range.part(static_cast<size_t>(to) * size, size));
  };
  for (size_t layer = 0; layer < own.history.size(); ++layer) {
    copy(*own.history[layer], VulkanStateCache::history_size(cache.spec.layers[layer]));
    copy(*own.matrices[layer], VulkanStateCache::matrices_size(cache.spec.layers[layer]));
  }
}

void VulkanDevice::causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) {
  checks::causal_conv(*batch_, cache, layer, weight, x);
  const DeltaNetSpec& spec = cache.spec.layers[static_cast<size_t>(layer)];
  const VulkanBuffer& history = *static_cast<VulkanStateCache&>(cache).history[static_cast<size_t>(layer)];
  const parameters::CausalConv p{address(x),
                                 address(weight),
                                 history.range.address,
                                 inputs_.seq_start,
                                 inputs_.positions,
                                 inputs_.state_slots,
                                 int32_t(x.cols),
                                 int32_t(x.stride),
                                 int32_t(weight.stride),
                                 int32_t(VulkanStateCache::history_size(spec))};
  run(Shader::causal_conv, {kChannelGroup, static_cast<uint32_t>(spec.conv_kernel)}, p,
      {(x.cols + kChannelGroup - 1) / kChannelGroup, batch_->sequences()},
      {writes(x), reads(weight), all_of(history)});
}

void VulkanDevice::delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a,
                              const Tensor& b, const Tensor& decay, const Tensor& dt_bias,
                              const Tensor& out) {
  checks::delta_rule(*batch_, cache, layer, qkv, a, b, decay, dt_bias, out);
  const DeltaNetSpec& spec = cache.spec.layers[static_cast<size_t>(layer)];
  const VulkanBuffer& matrices = *static_cast<VulkanStateCache&>(cache).matrices[static_cast<size_t>(layer)];
  const parameters::DeltaPrepare prepare{address(qkv),      address(a),        address(b),
                                         address(decay),    address(dt_bias),  int32_t(qkv.stride),
                                         int32_t(a.stride), int32_t(b.stride), spec.key_heads,
                                         spec.value_heads,  spec.key_dim};
  run(Shader::delta_prepare, {kPrepareGroup}, prepare, {2 * spec.key_heads + 1, qkv.rows},
      {writes(qkv), writes(a), writes(b), reads(decay), reads(dt_bias)});
  parameters::DeltaRule p{address(qkv),
                          address(a),
                          address(b),
                          address(out),
                          matrices.range.address,
                          inputs_.seq_start,
                          inputs_.positions,
                          inputs_.state_slots,
                          int32_t(qkv.stride),
                          int32_t(a.stride),
                          int32_t(b.stride),
                          int32_t(out.stride),
                          spec.key_heads,
                          spec.value_heads,
                          spec.value_dim,
                          spec.tiled,
                          int32_t(VulkanStateCache::matrices_size(spec)),
                          0};
  int longest = 0;
  for (int i = 0; i < batch_->sequences(); ++i)
    longest = std::max(longest, batch_->seq_start[i + 1] - batch_->seq_start[i]);
  for (; p.first_row < longest; p.first_row += kDeltaRows)
    run(Shader::delta_rule, {kValueGroup, static_cast<uint32_t>(spec.key_dim)}, p,
        {spec.value_heads * ((spec.value_dim + kValueGroup - 1) / kValueGroup), batch_->sequences()},
        {reads(qkv), reads(a), reads(b), all_of(matrices), writes(out)});
}

}  // namespace vllm::vulkan
