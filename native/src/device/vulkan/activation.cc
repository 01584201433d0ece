// Elementwise functions of the Vulkan device.
#include "device/checks.h"
#include "device/vulkan/vulkan_device.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128;

int64_t groups(int64_t cols) { return (cols + kGroup - 1) / kGroup; }

}  // namespace

void VulkanDevice::gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) {
  checks::gated(gate, up, out);
  const parameters::Gated p{address(gate),       address(up),          address(out),
                            int32_t(gate.cols),  int32_t(gate.stride), int32_t(up.stride),
                            int32_t(out.stride), static_cast<int>(act)};
  run(Shader::gated, {kGroup}, p, {groups(gate.cols), gate.rows}, {reads(gate), reads(up), writes(out)});
}

void VulkanDevice::softcap(float cap, const Tensor& x) {
  checks::tensor("softcap", "x", x, x.rows, x.cols);
  const parameters::Softcap p{address(x), int32_t(x.cols), int32_t(x.stride), cap};
  run(Shader::softcap, {kGroup}, p, {groups(x.cols), x.rows}, {writes(x)});
}

void VulkanDevice::add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) {
  checks::add_gated_rows(x, gate, out);
  const parameters::AddGatedRows p{address(x),         address(gate),     address(out),
                                   int32_t(x.cols),    int32_t(x.stride), int32_t(gate.stride),
                                   int32_t(out.stride)};
  run(Shader::add_gated_rows, {kGroup}, p, {groups(x.cols), x.rows}, {reads(x), reads(gate), writes(out)});
}

void VulkanDevice::gather_logit_rows(const Tensor& x, const Tensor& out) {
  checks::gather_logit_rows(*batch_, x, out);
  const parameters::GatherRows p{address(x),      address(out),      inputs_.logit_rows,
                                 int32_t(x.cols), int32_t(x.stride), int32_t(out.stride)};
  run(Shader::gather_rows, {kGroup}, p, {groups(x.cols), out.rows}, {reads(x), writes(out)});
}

}  // namespace vllm::vulkan
