// Normalisation and rotary positions of the Vulkan device.
#include "device/checks.h"
#include "device/vulkan/vulkan_device.h"

namespace vllm::vulkan {
namespace {

// The order of the sums depends on them.
constexpr uint32_t kRowGroup = 128, kHeadGroup = 64;

}  // namespace

void VulkanDevice::rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                            const Tensor& out) {
  checks::rms_norm(x, weight, out);
  const parameters::RmsNorm p{address(x),        address(weight),     address(out), int32_t(x.cols),
                              int32_t(x.stride), int32_t(out.stride), accumulate,   eps};
  run(Shader::rms_norm, {kRowGroup}, p, {1, x.rows}, {reads(x), reads(weight), writes(out)});
}

void VulkanDevice::norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps,
                             const RopeSpec& rope) {
  checks::norm_rope(*batch_, x, heads, norm, rope);
  const parameters::NormRope p{address(x),        norm ? address(*norm) : 0, rope_table(rope),
                               int32_t(x.stride), int32_t(x.cols / heads),   int32_t(rope.inv_freq.size()),
                               norm != nullptr,   rope.interleaved,          eps};
  run(Shader::norm_rope, {kHeadGroup}, p, {heads, x.rows}, {writes(x), norm ? reads(*norm) : Use{}});
}

}  // namespace vllm::vulkan
