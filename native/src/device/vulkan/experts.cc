// Mixture of experts of the Vulkan device.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "device/checks.h"
#include "device/vulkan/product.h"
#include "device/vulkan/weights.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128, kRouteGroup = 64;
constexpr size_t kMaxExperts = 1024;  // shaders/route.comp
constexpr int64_t kMostRows = 512;    // at once, which bounds the memory of what is between the products

using Member = const DeviceWeight* ExpertWeights::*;

void append_entry(const DeviceWeight& any, std::vector<uint32_t>& to) {
  const auto& weight = static_cast<const VulkanWeight&>(any);
  if (weight.parts.size() != 1)
    fail_runtime("experts: a matrix of %lld x %lld is too large for one buffer of the Vulkan device.",
                 static_cast<long long>(weight.rows), static_cast<long long>(weight.cols));
  for (const uint64_t address : {weight.parts[0].memory->range.address, weight.scale_of(weight.parts[0]),
                                 weight.order ? weight.order->range.address : 0}) {
    to.push_back(static_cast<uint32_t>(address));
    to.push_back(static_cast<uint32_t>(address >> 32));
  }
  to.push_back(static_cast<uint32_t>(weight.scale_kind));
  to.push_back(weight.order != nullptr);
  to.push_back(static_cast<uint32_t>(weight.format));
  to.push_back(static_cast<uint32_t>(weight.row_words));
}

}  // namespace

void VulkanDevice::experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
                           const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) {
  checks::experts(router, experts, x, logits, out);
  if (experts.size() > kMaxExperts)
    fail_runtime("experts: the Vulkan device takes %zu experts, not %zu.", kMaxExperts, experts.size());
  if (x.rows > kMostRows) {
    for (int64_t first = 0; first < x.rows; first += kMostRows) {
      const int64_t count = std::min(kMostRows, x.rows - first);
      this->experts(router, experts, act, x.row_range(first, count), logits.row_range(first, count),
                    accumulate, out.row_range(first, count));
    }
    return;
  }
  const int64_t used = router.experts_per_row, choices = x.rows * used, inner = experts[0].gate->rows;
  const auto dot = [&](Member member) {
    return gpu().features.integer_dot &&
           std::all_of(experts.begin(), experts.end(), [&](const ExpertWeights& expert) {
             const auto& weight = static_cast<const VulkanWeight&>(*(expert.*member));
             return weight.has_codes() && !weight.order;  // an order would be one for each expert
           });
  };
  const bool dot_gate = dot(&ExpertWeights::gate), dot_up = dot(&ExpertWeights::up),
             dot_down = dot(&ExpertWeights::down);
  // ids | weights | gate | up | down, by choice, and blocks of x and of what goes down
  const int64_t sizes[] = {choices, choices, choices * inner, choices * inner, choices * x.cols};
  const size_t x_blocks = dot_gate || dot_up ? block_bytes(x.rows, x.cols) : 0,
               inner_blocks = dot_down ? block_bytes(choices, inner) : 0;
  uint64_t at[5], total = 0;
  for (size_t i = 0; i < 5; ++i) at[i] = total, total += static_cast<uint64_t>((sizes[i] + 63) / 64 * 64) * 4;
  const Range memory = scratch(total + x_blocks + inner_blocks);
  Use uses[5];
  for (size_t i = 0; i < 5; ++i) {
    at[i] += memory.address;
    uses[i] = {at[i], static_cast<uint64_t>(sizes[i]) * 4, 1, 0, false};
  }
  const auto written = [](Use use) { return use.write = true, use; };
  const auto& [ids, weights, gate, up, down] = uses;

  const parameters::Route route{address(logits),         weights.address, ids.address,
                                int32_t(experts.size()), int32_t(used),   int32_t(logits.stride),
                                router.renormalise,      router.scale};
  run(Shader::route, {kRouteGroup}, route, {1, x.rows}, {reads(logits), written(ids), written(weights)});

  const auto product = [&](Member member, bool dotted, const Use& from, int64_t stride, bool rows_of_x,
                           const Use& to) {
    std::vector<uint32_t>& entries = entries_;
    entries.clear();
    std::set<Format> formats;
    for (const ExpertWeights& expert : experts) {
      append_entry(*(expert.*member), entries);
      formats.insert((expert.*member)->format);
    }
    const Range table = for_step(entries.size() * 4);
    std::memcpy(table.host, entries.data(), entries.size() * 4);
    const DeviceWeight& one = *(experts[0].*member);
    const parameters::ExpertMatmul p{table.address,     tables_.address, ids.address,      from.address,
                                     to.address,        int32_t(used),   rows_of_x,        int32_t(one.rows),
                                     int32_t(one.cols), int32_t(stride), int32_t(one.rows)};
    const ProductForm form(choices, 1, one.rows);
    const Groups groups{form.groups_x, form.groups_y};
    for (const Format format : formats) {
      const auto code = static_cast<uint32_t>(format);
      if (dotted) {
        run(Shader::expert_matmul_dot, {form.kGroup, code, form.rows, form.lanes}, p, groups,
            {from, ids, written(to)});
      } else {
        const bool aligned = from.address % 16 == 0 && stride % 4 == 0;
        run(Shader::expert_matmul, {form.kGroup, code, form.rows, form.lanes, aligned}, p, groups,
            {from, ids, written(to)});
      }
    }
  };
  Use blocks{};
  if (x_blocks) blocks = quantise(reads(x), nullptr, memory.part(total, x_blocks));
  const int64_t x_stride = x.cols / 32;
  product(&ExpertWeights::gate, dot_gate, dot_gate ? blocks : reads(x), dot_gate ? x_stride : x.stride, true,
          gate);
  product(&ExpertWeights::up, dot_up, dot_up ? blocks : reads(x), dot_up ? x_stride : x.stride, true, up);
  const parameters::Gated gated{gate.address,   up.address,     gate.address,   int32_t(inner),
                                int32_t(inner), int32_t(inner), int32_t(inner), static_cast<int>(act)};
  run(Shader::gated, {kGroup}, gated, {(inner + kGroup - 1) / kGroup, choices}, {up, written(gate)});
  if (dot_down) {
    const auto width = static_cast<uint64_t>(inner) * 4;
    blocks = quantise({gate.address, width, static_cast<uint64_t>(choices), width, false}, nullptr,
                      memory.part(total + x_blocks, inner_blocks));
  }
  product(&ExpertWeights::down, dot_down, dot_down ? blocks : gate, dot_down ? inner / 32 : inner, false,
          down);
  const parameters::ExpertSum sum{down.address,  weights.address, address(out),        int32_t(x.cols),
                                  int32_t(used), int32_t(x.cols), int32_t(out.stride), accumulate};
  run(Shader::expert_sum, {kGroup}, sum, {(x.cols + kGroup - 1) / kGroup, x.rows},
      {down, weights, writes(out)});
}

}  // namespace vllm::vulkan
