// Mixture of experts of the Vulkan device.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/checks.h"
#include "device/vulkan/product.h"
#include "device/vulkan/weights.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128, kRouteGroup = 64, kBlocksGroup = 256;
constexpr size_t kMaxExperts = 1024;     // shaders/route.comp and expert_blocks.comp
constexpr int64_t kMostRows = 512;       // at once, which bounds the memory of what is between the products
constexpr int64_t kMostChoices = 65535;  // at once: workgroups that every device takes
constexpr int64_t kFewTogether = 8;      // up to which shaders/expert_matmul.comp computes
constexpr int64_t kTileOutputs = 64;     // of a workgroup of shaders/expert_tiles.comp
constexpr size_t kEntryWords = 10;       // parameters::ExpertMatmul

using Member = const DeviceWeight* ExpertWeights::*;
constexpr Member kMembers[] = {&ExpertWeights::gate, &ExpertWeights::up, &ExpertWeights::down};

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

const VulkanDevice::ExpertTable& VulkanDevice::expert_table(std::span<const ExpertWeights> experts) {
  ExpertTable& table = expert_tables_[experts[0].gate];
  if (std::ranges::equal(table.experts, experts)) return table;
  if (table.memory.buffer) give_back(table.memory);
  table = {};
  std::vector<uint32_t> entries;
  for (size_t i = 0; i < std::size(kMembers); ++i) {
    ExpertTable::Matrices& matrices = table.matrices[i];
    matrices.codes = true;
    for (const ExpertWeights& expert : experts) {
      const auto& weight = static_cast<const VulkanWeight&>(*(expert.*kMembers[i]));
      append_entry(weight, entries);
      matrices.formats.insert(weight.format);
      matrices.codes &= weight.has_codes() && !weight.order;  // an order would be one for each expert
    }
  }
  table.memory = memory_.allocate(entries.size() * 4, MemoryKind::Device);
  const Range staged = recorder_.stage(table.memory.bytes);
  std::memcpy(staged.host, entries.data(), staged.bytes);
  recorder_.copy(staged, table.memory);
  recorder_.submit();  // as in pack()
  table.experts.assign(experts.begin(), experts.end());
  return table;
}

void VulkanDevice::forget_expert_tables() noexcept {
  for (const auto& [gate, table] : expert_tables_)
    if (table.memory.buffer) give_back(table.memory);
  expert_tables_.clear();
}

void VulkanDevice::experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
                           const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) {
  checks::experts(router, experts, x, logits, out);
  if (experts.size() > kMaxExperts)
    fail_runtime("experts: the Vulkan device takes %zu experts, not %zu.", kMaxExperts, experts.size());
  const int64_t used = router.experts_per_row, most_rows = std::min(kMostRows, kMostChoices / used);
  if (x.rows > most_rows) {
    for (int64_t first = 0; first < x.rows; first += most_rows) {
      const int64_t count = std::min(most_rows, x.rows - first);
      this->experts(router, experts, act, x.row_range(first, count), logits.row_range(first, count),
                    accumulate, out.row_range(first, count));
    }
    return;
  }
  const int64_t choices = x.rows * used, inner = experts[0].gate->rows;
  const ExpertTable& table = expert_table(experts);
  const auto dot = [&](size_t member) { return gpu().features.integer_dot && table.matrices[member].codes; };
  const bool dot_gate = dot(0), dot_up = dot(1), dot_down = dot(2);
  // Where an expert has several choices in the mean, they are computed in blocks, many of them as tiles.
  const auto count = static_cast<int64_t>(experts.size());
  const int64_t together = std::max<int64_t>(choices / count, 1);
  const bool few = together <= kFewTogether;
  const uint32_t tall = together > 64 ? 8 : 4;  // eighths of the rows of a tile
  const int64_t size = few ? ProductForm(choices, together, inner).rows : 8 * tall;
  const int64_t blocks = (choices + std::min(count, choices) * (size - 1)) / size;  // at most
  // ids | weights | gate | up | down, by choice, blocks of choices, and those of x and of what goes down
  const int64_t sizes[] = {choices,         choices,          choices * inner,
                           choices * inner, choices * x.cols, size > 1 ? blocks * size : 0};
  const size_t x_blocks = dot_gate || dot_up ? block_bytes(x.rows, x.cols) : 0,
               inner_blocks = dot_down ? block_bytes(choices, inner) : 0;
  constexpr size_t kPlaces = std::size(sizes);
  uint64_t at[kPlaces], total = 0;
  for (size_t i = 0; i < kPlaces; ++i)
    at[i] = total, total += static_cast<uint64_t>((sizes[i] + 63) / 64 * 64) * 4;
  const Range memory = scratch(total + x_blocks + inner_blocks);
  Use uses[kPlaces];
  for (size_t i = 0; i < kPlaces; ++i) {
    at[i] += memory.address;
    uses[i] = {at[i], static_cast<uint64_t>(sizes[i]) * 4, 1, 0, false};
  }
  const auto written = [](Use use) { return use.write = true, use; };
  const auto& [ids, weights, gate, up, down, grouped] = uses;

  const parameters::Route route{address(logits),         weights.address, ids.address,
                                int32_t(experts.size()), int32_t(used),   int32_t(logits.stride),
                                router.renormalise,      router.scale};
  run(Shader::route, {kRouteGroup}, route, {1, x.rows}, {reads(logits), written(ids), written(weights)});

  if (size > 1) {
    const parameters::ExpertBlocks p{ids.address,    grouped.address, int32_t(choices),
                                     int32_t(count), int32_t(size),   int32_t(blocks)};
    run(Shader::expert_blocks, {kBlocksGroup}, p, {}, {ids, written(grouped)});
  }

  const auto product = [&](size_t member, bool dotted, const Use& from, int64_t stride, bool rows_of_x,
                           const Use& to) {
    const uint64_t matrices = table.memory.address + member * experts.size() * kEntryWords * 4;
    const DeviceWeight& one = *(experts[0].*kMembers[member]);
    const parameters::ExpertMatmul p{matrices,          tables_.address, ids.address,
                                     grouped.address,   from.address,    to.address,
                                     int32_t(used),     rows_of_x,       int32_t(one.rows),
                                     int32_t(one.cols), int32_t(stride), int32_t(one.rows)};
    const ProductForm form(choices, together, one.rows);
    const Groups groups{few ? form.groups_x : (one.rows + kTileOutputs - 1) / kTileOutputs, blocks};
    const uint32_t aligned = from.address % 16 == 0 && stride % 4 == 0;
    const std::initializer_list<Use> used_memory = {from, ids, grouped, written(to)};
    for (const Format format : table.matrices[member].formats) {
      const auto code = static_cast<uint32_t>(format);
      if (few && dotted) {
        run(Shader::expert_matmul_dot, {kGroup, code, form.rows, form.lanes}, p, groups, used_memory);
      } else if (few) {
        run(Shader::expert_matmul, {kGroup, code, form.rows, form.lanes, aligned}, p, groups, used_memory);
      } else if (dotted) {
        run(Shader::expert_tiles_dot, {kGroup, code, tall}, p, groups, used_memory);
      } else {
        run(Shader::expert_tiles, {kGroup, code, tall, aligned}, p, groups, used_memory);
      }
    }
  };
  Use quantised{};
  if (x_blocks) quantised = quantise(reads(x), nullptr, memory.part(total, x_blocks));
  const int64_t x_stride = x.cols / 32;
  product(0, dot_gate, dot_gate ? quantised : reads(x), dot_gate ? x_stride : x.stride, true, gate);
  product(1, dot_up, dot_up ? quantised : reads(x), dot_up ? x_stride : x.stride, true, up);
  const parameters::Gated gated{gate.address,   up.address,     gate.address,   int32_t(inner),
                                int32_t(inner), int32_t(inner), int32_t(inner), static_cast<int>(act)};
  run(Shader::gated, {kGroup}, gated, {(inner + kGroup - 1) / kGroup, choices}, {up, written(gate)});
  if (dot_down) {
    const auto width = static_cast<uint64_t>(inner) * 4;
    quantised = quantise({gate.address, width, static_cast<uint64_t>(choices), width, false}, nullptr,
                         memory.part(total + x_blocks, inner_blocks));
  }
  product(2, dot_down, dot_down ? quantised : gate, dot_down ? inner / 32 : inner, false, down);
  const parameters::ExpertSum sum{down.address,  weights.address, address(out),        int32_t(x.cols),
                                  int32_t(used), int32_t(x.cols), int32_t(out.stride), accumulate};
  run(Shader::expert_sum, {kGroup}, sum, {(x.cols + kGroup - 1) / kGroup, x.rows},
      {down, weights, writes(out)});
}

}  // namespace vllm::vulkan
